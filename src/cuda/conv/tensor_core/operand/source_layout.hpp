#pragma once
// A whole source as operand in global memory. Plain data for both sides of a launch.

#include <cstdint>

#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedRows = 8;    // neighbouring rows in 16 bytes of an operand
inline constexpr int kPreconvertedBlocks = 4;  // of 8 rows, in a step
inline constexpr int kFlagPositions = 64;      // positions that share a flag of the source
inline constexpr int kOperandHeaderBytes = 256;

/// A source as operand: [group][tile][step of 32 rows][plane][part][block of 8 rows][place][8 rows], 16 bits each, so that what
/// a step of the reduction reads is one run of bytes. A tile has the places of `tile_positions` positions and of those that
/// later taps reach; samples follow each other along the positions; what no element belongs to is zero. Where taps reach far
/// they are planes of their own.
struct SourceLayout {
  int tile_positions, tile_places;
  bool taps_apart;
  std::int64_t planes;  // plane + tap * problem's planes where taps are apart
  int parts;
  std::int64_t row_steps, tiles;
  std::int64_t position_begin;  // of a sample
  std::int64_t sample_pitch;    // positions from one sample to the next
  std::int64_t positions;       // in all tiles
  std::int64_t flags;           // of a group
  FastDivide by_sample, by_planes, by_own_planes, by_places, by_row_blocks;
  [[nodiscard]] std::int64_t items() const { return tiles * planes * tile_places; }  // of a group and block of 8 rows
  [[nodiscard]] std::int64_t bytes(std::int64_t groups) const {
    return groups * items() * parts * row_steps * kPreconvertedBlocks * 16;
  }
};

}  // namespace polyphase::cuda::tensor_core
