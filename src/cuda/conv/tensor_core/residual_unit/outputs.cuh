#pragma once
// The outputs of a block of 16-bit numbers, from where they are staged to memory.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/average.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace polyphase::cuda::tensor_core {

/// A block of positions: outputs of one sample.
struct UnitBlock {
  int sample, begin;  ///< the first output in the sample

  __device__ __forceinline__ UnitBlock(const UnitTiling& tiling, unsigned block)
      : sample(static_cast<int>(block / static_cast<unsigned>(tiling.tiles))),
        begin(static_cast<int>(block % static_cast<unsigned>(tiling.tiles)) * tiling.tile) {}
};

/// A lane's vectors of 8 outputs of a block: kRows channels at one place, and the same channels in later passes.
template <class Shape>
struct UnitVectors {
  static constexpr int kLanes = Shape::kPositions < 256 ? Shape::kPositions / 8 : 32;  // of a channel
  static constexpr int kWarps = Shape::kWarps * (32 / kLanes), kRows = Shape::kChannels / kWarps;
  static constexpr int kPasses = (Shape::kPositions + 255) / 256;
  static constexpr int kStagedBytes = Shape::kStagedPitch * 2;
  int count, column;
  std::uint32_t row_bytes;
  std::int64_t first;  ///< of the first vector, in bytes from the tensor's beginning
  int staged;          ///< the same from the beginning of what is staged

  __device__ __forceinline__ UnitVectors(const UnitTiling& tiling, const UnitBlock& block, int warp, int lane)
      : count(min(tiling.tile, tiling.length - block.begin)),
        column(lane % kLanes),
        row_bytes(static_cast<std::uint32_t>(tiling.length) * 2) {
    const int row = warp * (32 / kLanes) + lane / kLanes;
    const std::int64_t rows = static_cast<std::int64_t>(block.sample) * Shape::kChannels + row;
    first = (rows * tiling.length + block.begin + 8 * column) * 2;
    staged = row * kStagedBytes + column * 16;
  }
  [[nodiscard]] __device__ __forceinline__ bool exists(int pass) const { return pass * 256 + 8 * column < count; }
  /// Calls use(pass, i) for each vector.
  template <class Use>
  __device__ __forceinline__ void for_each(const Use& use) const {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!exists(pass)) continue;
#pragma unroll
      for (int i = 0; i < kRows; ++i) use(pass, i);
    }
  }
  template <class Byte>
  [[nodiscard]] __device__ __forceinline__ Byte* in(Byte* tensor, int pass, int i) const {
    return tensor + first + static_cast<std::uint64_t>(i * kWarps) * row_bytes + pass * 512;
  }
  [[nodiscard]] __device__ __forceinline__ const uint4& of_staged(const unsigned char* begin, int pass, int i) const {
    return *reinterpret_cast<const uint4*>(begin + staged + i * kWarps * kStagedBytes + pass * 512);
  }
};

/// Writes the staged outputs, averaged with other numbers if there are any. A lane reads those before it replaces them.
template <class T, bool kMayAverage, class Shape>
__device__ __forceinline__ void store_unit_outputs(const UnitTiling& tiling, const unsigned char* staged, T* __restrict__ out,
                                                   const UnitAverage& average, const UnitBlock& block, int warp, int lane) {
  using Vectors = UnitVectors<Shape>;
  const Vectors vectors(tiling, block, warp, lane);
  auto* const to = reinterpret_cast<unsigned char*>(out);
  if constexpr (kMayAverage) {
    if (average.other != nullptr) {
      const auto* const other = static_cast<const unsigned char*>(average.other);
      constexpr int kAtOnce = 4;
      static_assert(Vectors::kRows % kAtOnce == 0);
      uint4 others[kAtOnce];
      vectors.for_each([&](int pass, int i) {
        if (i % kAtOnce == 0) {
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k) others[k] = __ldg(reinterpret_cast<const uint4*>(vectors.in(other, pass, i + k)));
        }
        ptx::store_vector(vectors.in(to, pass, i),
                          averaged_vector<T>(average, others[i % kAtOnce], vectors.of_staged(staged, pass, i)));
      });
      return;
    }
  }
  vectors.for_each([&](int pass, int i) { ptx::store_vector(vectors.in(to, pass, i), vectors.of_staged(staged, pass, i)); });
}

/// Asks for what store_unit_outputs() averages with.
template <class Shape>
__device__ __forceinline__ void prefetch_unit_average(const UnitTiling& tiling, const UnitAverage& average,
                                                      const UnitBlock& block, int warp, int lane) {
  const auto* const other = static_cast<const unsigned char*>(average.other);
  if (other == nullptr) return;
  using Vectors = UnitVectors<Shape>;
  const Vectors vectors(tiling, block, warp, lane);
#pragma unroll
  for (int pass = 0; pass < Vectors::kPasses; ++pass)
#pragma unroll
    for (int i = 0; i < Vectors::kRows; ++i)
      ptx::prefetch_l2(vectors.in(other, pass, i), lane % 8 == 0 && vectors.exists(pass));  // 128 bytes
}

}  // namespace polyphase::cuda::tensor_core
