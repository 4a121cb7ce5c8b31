#pragma once
// How a launch of the kernel with weights in registers cuts its output into tiles and shared memory into rings. Host arithmetic
// only.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kNarrowPositions = 128;  // of a tile
inline constexpr int kNarrowRows = 16;        // of a chunk: a step of gemm_k
inline constexpr int kNarrowDepthsMost = 20;
inline constexpr int kSpreadDepths = 6, kSpreadRows = 16,
                     kSpreadShift = 31;  // at most, where every second output is a bias; rows of a warp
inline constexpr int kNarrowRingMost = 24;
inline constexpr int kNarrowFixedBytes = 2048;  // beside the rings and the staging

/// One step: the whole reduction of a tile. `stages` are tiles, `raw_stages` chunks of kNarrowRows rows as they are in the
/// tensor.
struct NarrowSteps : StoredSteps {
  bool is_stacked;   // 32 columns whose high halves lie beside their low ones
  bool is_by_warps;  // no row of the output has sums of several warps
  bool is_spread;    // every second output is a bias, and rows are staged by vectors
  int depths;        // steps of gemm_k: products of one part
  bool stores_bulk;  // whole rows by bulk copies, else by the consumers' threads
  bool is_drawn;     // tiles are not dealt out, but drawn as they are wanted
  int halo;          // positions of the source beyond those of the tile
  int raw_stages, raw_bytes, raw_pitch;
  int channels;       // of a tile
  int out_pitch;      // elements of a staged row
  int staging_bytes;  // of a consumer
  Product products[kNarrowDepthsMost];
};

/// What the cutting needs to know of an operand and its arrays.
struct NarrowShape {
  int parts, element_bytes;
  bool is_sector_aligned;  // the output lies at a multiple of 32 bytes
};

/// count == 0 where it does not fit.
[[nodiscard]] NarrowSteps make_narrow_steps(const TapGemm& form, const NarrowShape& shape, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
