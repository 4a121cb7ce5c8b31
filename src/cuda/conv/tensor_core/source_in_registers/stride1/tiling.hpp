#pragma once
// How the kernel of kernel.cuh cuts a problem. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kStride1RowsOfStep = 16;
/// Runs that a block can be told of before the first of them is read: whoever copies is ahead of the consumer by the tiles that
/// a ring holds, the other consumer, whose turn was before, is at most a tile behind, and what copies for it as much.
inline constexpr int kBroadcastRuns = 8, kStride1TilesAhead = kBroadcastRuns - 3;
inline constexpr int kStride1BarrierBytes = 64 + 16 * kBroadcastRuns + 256;
/// Of a column's bias: a float; of 16 bits its part of an operand of 16 rows.
[[nodiscard]] constexpr int rows_bias_bytes(int element_bytes) { return element_bytes == 2 ? 32 : 4; }

/// Which elements of a tile's rows are aligned as one number of twice the size together with the next: 0, 2, ..., 1, 3, ..., or
/// it depends on the row.
enum class Stride1Parity : int { even, odd, mixed };

/// Rows of the source that begin alike modulo 16 bytes are a class, and so are those of an f32 output modulo a sector of 32;
/// each has a tensor map.
inline constexpr int kStride1ClassesMost = 2, kStoreClassesMost = 8;

/// Positions of a tile that is stored through maps.
inline constexpr int kCarryPositions = 128;

/// Whether the two consumers share a ring and multiply in strict turns: where products take less time than memory, but not so
/// little that the products of one could go unnoticed behind the other's stores.
[[nodiscard]] constexpr bool takes_turns(int parts, int element_bytes) { return parts == 1 && element_bytes == 4; }

/// Steps of 16 rows x all taps, whose source stays in rows; `stages` are those of a consumer.
struct Stride1Tiling : Tiling {
  int pitch, stage_bytes;  // of a row and of a step in shared memory
  int span;                // elements of a row that a tile reads
  int turn;                // with two rings: pairs of steps behind which the other consumer may begin its next tile
  Stride1Parity parity;
  int classes;        // 1 or 2: rows equal modulo it lie side by side in a stage, and come through maps; 0: as 1, no maps
  int rings;          // of `stages` each
  int store_classes;  // output rows equal modulo it go through a map; 0: no maps
  int run;            // neighbouring tiles that a block works on, its consumers in turns; 1 without maps
  int last_run;       // those of a row's last run
  int staging_bytes;  // of a consumer
  int store_columns;  // of a box
  bool is_dynamic;    // a block's runs, behind the first two; else they are static
  bool stores_pairs;  // neighbouring outputs are aligned as one number of twice the size, and tiles do not overlap
};

/// What the cutting needs to know of a kernel and the arrays.
struct Stride1Shape {
  int halves;  // of 64 positions
  int columns, parts;
  int element_bytes;                // of source and output
  int staging_bytes;                // of a consumer
  int carry_bytes, carry_columns;   // the same, and columns of a box, where tiles carry; 0: no such kernel
  int source_address, out_address;  // modulo 16
};

/// Whether the source is read, and the output written, position by position: stride and dilation 1. 16-bit types also need rows
/// that begin at whole words.
[[nodiscard]] bool is_for_stride1(const TapGemm& gemm, int element_bytes);

/// count == 0 where it does not fit.
[[nodiscard]] Stride1Tiling make_stride1_tiling(const TapGemm& gemm, const Stride1Shape& shape, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
