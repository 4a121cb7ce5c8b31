#pragma once
// How the kernel of kernel.cuh cuts a problem. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/alignment.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kTmaPositions = 128;  // of a tile
inline constexpr int kTmaPitch = 140;      // numbers of a copied row where its place is known when the kernel is compiled
inline constexpr int kTmaDepthsMost = 20;
inline constexpr int kTmaWholeDepths = 14;  // of two parts: past it the steps are two sums
inline constexpr int kTmaTurns = 4;         // barriers of a pipeline's tiles; not less than stages of operands
inline constexpr int kTmaRingMost = 16;
/// Bytes of the source and the output from which on the second-level cache, 50 MB, holds nothing of them that the next launch
/// could want: then it is to keep the source, whose lines neighbouring tiles share, before the output.
inline constexpr std::int64_t kTmaStreamed = std::int64_t{200} << 20;
inline constexpr int kTmaFixedBytes = 1024 + 1664;  // alignment; barriers, faults, wrong tiles, which tiles
/// Positions of a stored box of a tile whose rows begin at different places modulo a sector. So many words apart, eight rows of
/// pairs of words meet no bank twice.
inline constexpr int kTmaWidth = 120;
/// Positions of 128 bytes, in which rows of whole sectors are staged.
inline constexpr int kTmaLine = 32;
/// Source rows that begin alike modulo 16 bytes are a class, and so are output rows modulo a sector of 32.
inline constexpr int kTmaLoadMost = 4, kTmaStoreMost = 8;

/// How the rows of a problem lie.
enum class TmaRows : int {
  whole,  ///< of the source: all at 16 bytes, steps of 16 of them; of the output: whole sectors, eights of columns
  pairs,  ///< of the source: likewise; of the output: each from an even position on
  any,
};

/// One step: the whole reduction of a tile. `stages` are tiles, `raw_stages` chunks of rows as they are in the tensor.
struct TmaTiling : Tiling {
  TmaRows kind;
  bool is_half;                          // 32 columns: of two parts high and low halves are neighbours
  int depths;                            // steps of gemm_k: products of one part
  int halo;                              // positions of the source beyond those of the tile
  int chunks, chunk_rows, chunk_blocks;  // of a tile; rows, and vectors of 8 rows, of a chunk
  int raw_stages, raw_bytes, raw_pitch, raw_class_bytes;
  int load_bits, store_bits;  // log2 of the classes
  int lead[kTmaLoadMost];     // numbers of a copied row before the tile's first
  int shift[kTmaStoreMost];   // positions before a row's window
  int staging_bytes;          // of a consumer
  bool is_streamed;           // kTmaStreamed or more
  bool is_dynamic;            // the tile scheduler is dynamic, not static
  Product products[kTmaDepthsMost];
};

/// What the cutting needs to know of an operand and its arrays.
struct TmaShape {
  int parts;
  int source_place, out_place;  // numbers from a multiple of 16 bytes, of 32 bytes, to the arrays
};

[[nodiscard]] inline TmaShape tma_shape_of(int parts, const Alignment& at) {
  constexpr int kBytes = sizeof(float);
  return {parts, at.source % 16 / kBytes, at.out / kBytes};
}

/// count == 0 where it does not fit.
[[nodiscard]] TmaTiling make_tma_tiling(const TapGemm& gemm, const TmaShape& shape, int sm_count, int shared_limit);

/// Whether tiles of whole rows have a residual and a derivative at once: not where the weights leave no registers.
[[nodiscard]] constexpr bool source_tma_has_both(int parts, bool is_half, int depths) {
  return parts == 1 || !is_half || depths <= kTmaWholeDepths;
}

}  // namespace polyphase::cuda::tensor_core
