#pragma once
// Recomputes the suspect outputs of a rectangle of columns and positions, by a warp: many of them on the tensor cores, few of
// them, and what an infinity or NaN reaches, one by one with FFMA.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"
#include "cuda/conv/tensor_core/recompute/tf32_sums.cuh"

namespace polyphase::cuda::tensor_core {

/// A rectangle of 16 * kM columns and 8 * kN positions. A lane has the outputs of sums as Tf32Sums has them: of its columns
/// c < 2 * kM, which are 8 * c + lane/4 of the rectangle, and positions j < 8 * kN. Bit 4 * (m * kN + n) + i of a mask stands
/// for the lane's column 2 * m + i/2 and the rectangle's position 8 * n + lane%4 * 2 + i%2.
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

/// Recomputes the outputs of `suspects`, a mask of each lane. `columns`: the lane's, negative where there is none;
/// position(j): SumPosition of the rectangle's position j; write(c, j, sum) stores an output of the lane.
template <int kM, int kN, class PositionOf, class Write>
__device__ __forceinline__ void recompute_block(const TapGemm& gemm, const ExactSource<>& exact, std::int64_t g,
                                                const std::int64_t (&columns)[2 * kM], std::uint32_t suspects,
                                                const PositionOf& position, const Write& write) {
  using Block = RecomputeBlock<kM, kN>;
  constexpr unsigned kFew = 24;  // a warp's FFMA of so many take as long as its products of all
  constexpr float kLargest = 3.402823466e38F;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (__reduce_add_sync(0xffffffffU, static_cast<unsigned>(__popc(suspects))) > kFew) {
    Tf32Sums<kM, kN> sums;
#pragma unroll
    for (int c = 0; c < 2 * kM; ++c) sums.columns[c] = columns[c];
#pragma unroll
    for (int n = 0; n < kN; ++n) sums.positions[n] = position(8 * n + lane / 4);
    sum_tf32(gemm, exact, g, &sums);
    std::uint32_t again = 0;
#pragma unroll
    for (int bit = 0; bit < Block::kOutputs; ++bit) {
      const float sum = sums.of[bit / (4 * kN)][bit / 4 % kN][bit % 4];
      if ((suspects >> bit & 1U) == 0) continue;
      if (fabsf(sum) <= kLargest)
        write(Block::column_of(bit), Block::position_of(bit, lane), sum);
      else
        again |= 1U << bit;
    }
    const unsigned done = __reduce_add_sync(0xffffffffU, static_cast<unsigned>(__popc(suspects & ~again)));
    if (lane == 0 && done != 0) count_recomputed(done);
    suspects = again;
  }
  for (std::uint32_t lanes = __ballot_sync(0xffffffffU, suspects != 0); lanes != 0;
       lanes = __ballot_sync(0xffffffffU, suspects != 0)) {
    const int of = __ffs(static_cast<int>(lanes)) - 1;
    const int bit = __shfl_sync(0xffffffffU, __ffs(static_cast<int>(suspects)) - 1, of);
    if (lane == of) suspects &= suspects - 1;
    const int c = Block::column_of(bit), j = Block::position_of(bit, of);
    std::int64_t column = columns[0];
#pragma unroll
    for (int i = 1; i < 2 * kM; ++i) column = c == i ? columns[i] : column;
    column = __shfl_sync(0xffffffffU, column, of);
    const SumPosition at = position(j);
    const float sum = exact_sum(gemm, exact, exact.is_forward, at.n, g, column, at.position);
    if (lane == of) write(c, j, sum);
  }
}

}  // namespace polyphase::cuda::tensor_core
