#pragma once
// Tilings of the kernel in kernel.cuh. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/alignment.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kTmaPositions = 128;  // per tile
inline constexpr int kTmaPitch = 140;      // numbers of a copied row if its place is known at compile time
inline constexpr int kTmaDepthsMost = 20;
inline constexpr int kTmaWholeDepths = 14;  // with two parts: beyond it the steps form two sums
inline constexpr int kTmaTurns = 4;         // barriers of a pipeline's tiles; not fewer than stages of operands
inline constexpr int kTmaRingMost = 16;
/// Bytes of source and output above which L2 (50 MB) holds nothing that the next launch could use: then it should keep the
/// source, whose lines neighbouring tiles share, rather than the output.
inline constexpr std::int64_t kTmaStreamed = std::int64_t{200} << 20;
inline constexpr int kTmaFixedBytes = 1024 + 1664;  // alignment; barriers, suspect counts, suspect tiles, tile numbers
/// Positions of a stored box in a tile whose rows begin at different offsets in a sector. With this pitch eight rows of pairs
/// of words have no bank conflict.
inline constexpr int kTmaWidth = 120;
/// Positions in 128 bytes, the unit in which rows of whole sectors are staged.
inline constexpr int kTmaLine = 32;
/// Source rows with the same offset modulo 16 bytes are a class, and so are output rows modulo a 32-byte sector.
inline constexpr int kTmaLoadMost = 4, kTmaStoreMost = 8;

/// The alignment of a problem's rows.
enum class TmaRows : int {
  whole,  ///< source: all at multiples of 16 bytes, steps of 16 rows; output: whole sectors, columns in groups of eight
  pairs,  ///< source: the same; output: each row from an even position on
  any,
};

/// One step is the whole reduction of a tile. `stages` are tiles, `raw_stages` chunks of unconverted rows.
struct TmaTiling : Tiling {
  TmaRows kind;
  bool is_half;                          // 32 columns: with two parts, high and low halves are neighbours
  int depths;                            // steps of gemm_k: products per part
  int halo;                              // positions of the source beyond those of the tile
  int chunks, chunk_rows, chunk_blocks;  // per tile; rows, and vectors of 8 rows, per chunk
  int raw_stages, raw_bytes, raw_pitch, raw_class_bytes;
  int load_bits, store_bits;  // log2 of the classes
  int lead[kTmaLoadMost];     // numbers of a copied row before the tile's first
  int shift[kTmaStoreMost];   // positions before a row's window
  int staging_bytes;          // per consumer
  bool is_streamed;           // kTmaStreamed or more
  bool is_dynamic;            // the tile scheduler is dynamic, not static
  Product products[kTmaDepthsMost];
};

/// What the tiling depends on: an operand and its arrays.
struct TmaShape {
  int parts;
  int source_place, out_place;  // offsets of the arrays from multiples of 16 and 32 bytes, in numbers
};

[[nodiscard]] inline TmaShape tma_shape_of(int parts, const Alignment& at) {
  constexpr int kBytes = sizeof(float);
  return {parts, at.source % 16 / kBytes, at.out / kBytes};
}

/// count == 0 if it does not fit.
[[nodiscard]] TmaTiling make_tma_tiling(const TapGemm& gemm, const TmaShape& shape, int sm_count, int shared_limit);

/// Whether tiles of whole rows take a residual and a derivative together: not if the weights leave no registers.
[[nodiscard]] constexpr bool source_tma_has_both(int parts, bool is_half, int depths) {
  return parts == 1 || !is_half || depths <= kTmaWholeDepths;
}

}  // namespace polyphase::cuda::tensor_core
