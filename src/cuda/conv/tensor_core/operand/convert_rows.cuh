#pragma once
// Shared parts of the kernels that copy rows of a tensor to shared memory and convert them there.

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/conv/tensor_core/operand/tile.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kConverters = 128;  // threads of a pair

/// The range of converted numbers: the largest half (NaN included), the least half, and the least nonzero magnitude in rows
/// with a half that was too small, if that is enough to know.
struct Seen {
  __half2 most = __half2half2(__float2half(0.0F)), fewest = __half2half2(__float2half(kLargestHalf));
};

/// Converts v*scale to one or two halves and updates `seen`.
template <class Operand>
__device__ __forceinline__ void convert_seen(const float (&v)[8], float scale, uint4 (&parts)[Operand::kParts], Seen& seen) {
  __half2 high[4];
  std::uint32_t low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
    high[i] = __floats2half2_rn(a, b);
    if constexpr (Operand::kParts == 2) low[i] = low_parts(a, b, high[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    seen.most = __hmax2_nan(seen.most, __habs2(high[i]));
    seen.fewest = __hmin2(seen.fewest, __habs2(high[i]));
  }
  parts[0] = *reinterpret_cast<const uint4*>(high);
  if constexpr (Operand::kParts == 2) parts[1] = make_uint4(low[0], low[1], low[2], low[3]);
}

/// The number of elements of a row in one step.
__device__ __forceinline__ int span_of(const Tile& tile) {
  return tile.stride * (tile.window - 1) + (tile.planes - 1) * tile.plane_step + 1;
}

/// Byte offsets from the first of `kRows` rows, `raw_pitch` apart in shared memory, to each row's first element: each row was
/// copied from the 16-byte boundary before it. `base` is the first element's address in the tensor.
template <class T, class Tiling, int kRows>
__device__ __forceinline__ void find_raw_rows(const T* base, const Tiling& tiling, int (&offsets)[kRows]) {
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(base));
  const std::uint32_t pitch = static_cast<std::uint32_t>(tiling.tile.length) * static_cast<std::uint32_t>(sizeof(T));
#pragma unroll
  for (int c = 0; c < kRows; ++c)
    offsets[c] = c * tiling.raw_pitch + static_cast<int>((address + static_cast<std::uint32_t>(c) * pitch) & 15U);
}

}  // namespace polyphase::cuda::tensor_core
