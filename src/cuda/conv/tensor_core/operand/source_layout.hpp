#pragma once
// The layout of a whole source as an operand in global memory. Plain data for host and device.

#include <cstdint>

#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedRows = 8;    // neighbouring rows in 16 bytes of an operand
inline constexpr int kPreconvertedBlocks = 4;  // blocks of 8 rows per step
inline constexpr int kFlagPositions = 64;      // positions that share a flag of the source
inline constexpr int kOperandHeaderBytes = 256;

/// A source as operand: [group][tile][step of 32 rows][plane][part][block of 8 rows][place][8 rows], 16 bits each, so that a
/// step of the reduction reads contiguous bytes. A tile has the places of `tile_positions` positions and of those that later
/// taps reach. Samples follow each other along the positions; places without an element are zero. Taps that are far apart have
/// planes of their own.
struct SourceLayout {
  int tile_positions, tile_places;
  bool taps_apart;
  std::int64_t planes;  // plane + tap * the problem's planes if taps have planes of their own
  int parts;
  std::int64_t row_steps, tiles;
  std::int64_t position_begin;  // per sample
  std::int64_t sample_pitch;    // positions from one sample to the next
  std::int64_t positions;       // in all tiles
  std::int64_t flags;           // per group
  FastDivide by_sample, by_planes, by_own_planes, by_places, by_row_blocks;
  [[nodiscard]] std::int64_t items() const { return tiles * planes * tile_places; }  // per group and block of 8 rows
  [[nodiscard]] std::int64_t bytes(std::int64_t groups) const {
    return groups * items() * parts * row_steps * kPreconvertedBlocks * 16;
  }
};

}  // namespace polyphase::cuda::tensor_core
