#pragma once
// Tilings of the kernel in kernel.cuh. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kStride1RowsOfStep = 16;
/// Depth of the scheduler's broadcast ring. The producer is ahead of the consumer by the tiles that a ring holds; the other
/// consumer, whose turn was before, is at most one tile behind, and so is its producer.
inline constexpr int kBroadcastRuns = 8, kStride1TilesAhead = kBroadcastRuns - 3;
inline constexpr int kStride1BarrierBytes = 64 + 16 * kBroadcastRuns + 256;
/// Bytes of a column's bias: a float, or in 16 bits its part of an operand of 16 rows.
[[nodiscard]] constexpr int rows_bias_bytes(int element_bytes) { return element_bytes == 2 ? 32 : 4; }

/// The elements of a tile's rows that are aligned as one number of twice the size together with the next: 0, 2, ...; 1, 3, ...;
/// or it depends on the row.
enum class Stride1Parity : int { even, odd, mixed };

/// Rows of the source with the same offset modulo 16 bytes are a class, and so are rows of an f32 output modulo a 32-byte
/// sector; each class has a tensor map.
inline constexpr int kStride1ClassesMost = 2, kStoreClassesMost = 8;

/// Positions of a tile that is stored through maps.
inline constexpr int kCarryPositions = 128;

/// Whether the two consumers share a ring and multiply in strict turns: if products take less time than memory, but more than
/// the other consumer's stores can hide.
[[nodiscard]] constexpr bool takes_turns(int parts, int element_bytes) { return parts == 1 && element_bytes == 4; }

/// Steps of 16 rows x all taps, with the source in rows; `stages` are those of a consumer.
struct Stride1Tiling : Tiling {
  int pitch, stage_bytes;  // of a row and of a step in shared memory
  int span;                // elements of a row that a tile reads
  int turn;                // with two rings: pairs of steps after which the other consumer may begin its next tile
  Stride1Parity parity;
  int classes;        // 1 or 2: rows equal modulo it are neighbours in a stage and come through maps; 0: as 1, without maps
  int rings;          // with `stages` each
  int store_classes;  // output rows equal modulo it use one map; 0: no maps
  int run;            // neighbouring tiles that a block works on, its consumers in turn; 1 without maps
  int last_run;       // tiles of a row's last run
  int staging_bytes;  // per consumer
  int store_columns;  // of a box
  bool is_dynamic;    // a block's runs after the first two are dynamic; else all are static
  bool stores_pairs;  // neighbouring outputs are aligned as one number of twice the size, and tiles do not overlap
};

/// What the tiling depends on: a kernel and the arrays.
struct Stride1Shape {
  int halves;  // of 64 positions
  int columns, parts;
  int element_bytes;                // of source and output
  int staging_bytes;                // per consumer
  int carry_bytes, carry_columns;   // the same, and columns of a box, if tiles carry; 0: no such kernel
  int source_address, out_address;  // modulo 16
};

/// Whether source and output advance position by position: stride and dilation 1. 16-bit types also need rows that begin at
/// whole words.
[[nodiscard]] bool is_for_stride1(const TapGemm& gemm, int element_bytes);

/// count == 0 if it does not fit.
[[nodiscard]] Stride1Tiling make_stride1_tiling(const TapGemm& gemm, const Stride1Shape& shape, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
