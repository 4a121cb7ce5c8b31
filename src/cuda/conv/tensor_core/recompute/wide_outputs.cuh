#pragma once
// Outputs that a kernel of suspect sums stores.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/untouched.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"

namespace polyphase::cuda::tensor_core {

/// The outputs of a call.
struct WideOutputs {
  const TapGemm& gemm;
  const ExactSource<>& exact;
  const Epilogue& epilogue;
  const float* bias;
  float* out;

  /// Outputs of one column: the row of the tensor that it is in, and where.
  struct Column {
    std::int64_t n, g, column, channel, first_t;
    float* row;
  };
  [[nodiscard]] __device__ __forceinline__ Column column_of(std::int64_t n, std::int64_t g, std::int64_t column) const {
    const std::int64_t channel = column / gemm.classes, a = column - channel * gemm.classes,
                       row = g * gemm.out_channels + channel;
    return {n,
            g,
            column,
            row,
            a * gemm.out_class_step + gemm.out_origin,
            out + (n * gemm.G * gemm.out_channels + row) * gemm.out_length};
  }
  /// Null where there is no output.
  [[nodiscard]] __device__ __forceinline__ float* at(const Column& of, std::int64_t position) const {
    const std::int64_t t = gemm.out_stride * position + of.first_t;
    const bool exists = position < gemm.position_begin + gemm.position_count && t >= 0 && t < gemm.out_length;
    return exists ? of.row + t : nullptr;
  }
  __device__ __forceinline__ void finish(const Column& of, float* to, float sum) const {
    *to = epilogue.finish<float>(sum + (bias != nullptr ? bias[of.channel] : 0.0F), of.channel, to);
  }

  /// An output of the list, by a warp with FFMA, unless is_computed(n, g, column, position from the first on).
  template <class IsComputed>
  __device__ __forceinline__ void store_listed(std::int64_t index, const IsComputed& is_computed) const {
    const std::int64_t of_begin = index % gemm.position_count, of_columns = index / gemm.position_count;
    const std::int64_t column = of_columns % gemm.columns, row = of_columns / gemm.columns, n = row / gemm.G, g = row % gemm.G;
    if (is_computed(n, g, column, of_begin)) return;
    store_exact(n, g, column, gemm.position_begin + of_begin);
  }
  /// An output, by a warp with FFMA.
  __device__ __forceinline__ void store_exact(std::int64_t n, std::int64_t g, std::int64_t column,
                                              std::int64_t position) const {
    const float sum = exact_sum(gemm, exact, exact.is_forward, n, g, column, position);
    if (threadIdx.x % 32 != 0) return;
    const Column of = column_of(n, g, column);
    float* const to = at(of, position);
    if (to != nullptr) finish(of, to, sum);
  }
  /// The outputs next to a column's that no tap reaches, in forward; the last class also has the phases without taps.
  __device__ __forceinline__ void finish_untouched(const Column& of, std::int64_t position) const {
    if (!exact.is_forward || position >= gemm.position_begin + gemm.position_count) return;
    for_untouched(
        gemm, gemm.out_stride * position + gemm.out_origin, of.column % gemm.classes, [] { return 0.0F; },
        [&](std::int64_t t, float nothing) { finish(of, of.row + t, nothing); });
  }

  /// Stores a warp's sums of one column and 32 positions, lane by lane; infinite ones and NaN are summed again by FFMA. Returns
  /// how many were not.
  [[nodiscard]] __device__ __forceinline__ int store(const Column& of, std::int64_t position, float sum) const {
    constexpr float kLargest = 3.402823466e38F;
    float* const to = at(of, position);
    const bool is_unusual = to != nullptr && !(fabsf(sum) <= kLargest);
    for (unsigned lanes = __ballot_sync(0xffffffffU, is_unusual); lanes != 0; lanes &= lanes - 1) {
      const int lane = __ffs(static_cast<int>(lanes)) - 1;
      const float again =
          exact_sum(gemm, exact, exact.is_forward, of.n, of.g, of.column, __shfl_sync(0xffffffffU, position, lane));
      if (static_cast<int>(threadIdx.x) % 32 == lane) sum = again;
    }
    if (to != nullptr) finish(of, to, sum);
    return to != nullptr && !is_unusual ? 1 : 0;
  }
};

}  // namespace polyphase::cuda::tensor_core
