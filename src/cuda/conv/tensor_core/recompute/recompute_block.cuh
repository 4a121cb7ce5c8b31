#pragma once
// Leaves the suspect outputs of a rectangle of columns and positions to the wide kernel, by a warp.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"

namespace polyphase::cuda::tensor_core {

/// Suspects of a warp's rectangle that FFMA recomputes one by one. With more of them in each rectangle of a block, the products
/// of the whole block take less time.
inline constexpr unsigned kFewSuspects = 4;

/// Whether a warp has more suspects than that; `suspects` is a mask of each lane.
__device__ __forceinline__ bool has_many(std::uint32_t suspects) {
  return __reduce_add_sync(0xffffffffU, static_cast<unsigned>(__popc(suspects))) > kFewSuspects;
}

/// An output position, or one that does not exist (n < 0).
struct SumPosition {
  std::int64_t n, position;
};

/// A rectangle of 16 * kM columns and 8 * kN positions. A lane has outputs of its columns c < 2 * kM, which are 8 * c + lane/4
/// of the rectangle, and positions j < 8 * kN. Bit 4 * (m * kN + n) + i of a mask stands for the lane's column 2 * m + i/2 and
/// the rectangle's position 8 * n + lane%4 * 2 + i%2.
template <int kM, int kN>
struct RecomputeBlock {
  static constexpr int kOutputs = 4 * kM * kN;
  static_assert(kOutputs <= 32);
  __device__ static __forceinline__ int column_of(int bit) { return 2 * (bit / (4 * kN)) + bit % 4 / 2; }
  __device__ static __forceinline__ int position_of(int bit, int lane) { return bit / 4 % kN * 8 + lane % 4 * 2 + bit % 2; }
};

/// The lane's outputs that are suspect: is_suspect(c, stored value) of those that address(c, j) is not null for.
template <int kM, int kN, class AddressOf, class IsSuspect>
__device__ __forceinline__ std::uint32_t suspects_of_block(const AddressOf& address, const IsSuspect& is_suspect) {
  using Block = RecomputeBlock<kM, kN>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float stored[Block::kOutputs];
  std::uint32_t suspects = 0;
#pragma unroll
  for (int bit = 0; bit < Block::kOutputs; ++bit) {
    const float* const at = address(Block::column_of(bit), Block::position_of(bit, lane));
    stored[bit] = at != nullptr ? *at : 0.0F;
    if (at != nullptr) suspects |= 1U << bit;
  }
#pragma unroll
  for (int bit = 0; bit < Block::kOutputs; ++bit)
    if (!is_suspect(Block::column_of(bit), stored[bit])) suspects &= ~(1U << bit);
  return suspects;
}

/// Leaves the outputs of `suspects`, a mask of each lane, to the wide kernel. `columns`: the lane's, negative where there is
/// none; position(j): SumPosition of the rectangle's position j.
template <int kM, int kN, class PositionOf>
__device__ __forceinline__ void recompute_block(const TapGemm& gemm, const ExactSource<>& exact, std::int64_t g,
                                                const std::int64_t (&columns)[2 * kM], std::uint32_t suspects,
                                                const PositionOf& position) {
  using Block = RecomputeBlock<kM, kN>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool many = has_many(suspects);
#pragma unroll 1
  for (; suspects != 0; suspects &= suspects - 1) {
    const int bit = __ffs(static_cast<int>(suspects)) - 1, c = Block::column_of(bit);
    std::int64_t column = columns[0];
#pragma unroll
    for (int i = 1; i < 2 * kM; ++i) column = c == i ? columns[i] : column;
    const SumPosition at = position(Block::position_of(bit, lane));
    exact.wide.add(gemm, at.n, g, column, at.position, many);
  }
}

}  // namespace polyphase::cuda::tensor_core
