#pragma once
// From a warp's 16 columns of sums to rows of the output.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPassPositions = 64;

/// A number on its way out: scaled back, biased, finished.
struct Finish {
  float scale;
  int exponent;  // where no float holds the scale
  Epilogue epilogue;
  __device__ __forceinline__ float operator()(float sum, float offset) const {
    return epilogue.apply((exponent == 0 ? sum * scale : ldexpf(sum, exponent)) + offset);
  }
};

/// Where the 16 columns of a warp go. `own` is the first column and position.
template <class T>
__device__ __forceinline__ void store_pass(const TapGemm& gemm, const Tiling& tiling, std::int64_t row_of_sample,
                                           std::int64_t column, std::int64_t position, const T* __restrict__ bias,
                                           std::int64_t first_bias, const Finish& finish, const float* staging, int lane,
                                           T* __restrict__ out) {
  if (gemm.out_stride == 1) {
    const std::int64_t t = position + gemm.out_origin;
    for (int row = 0; row < 16; ++row) {
      const std::int64_t channel = column + row;
      if (channel >= gemm.columns) return;
      const float offset = bias != nullptr ? static_cast<float>(bias[first_bias + channel]) : 0.0F;
      T* to = out + (row_of_sample + channel) * gemm.out_length + t;
#pragma unroll
      for (int p = lane; p < kPassPositions; p += 32) {
        if (t + p >= 0 && t + p < gemm.out_length) to[p] = static_cast<T>(finish(staging[row * kStagingPitch + p], offset));
      }
    }
    return;
  }
  const int classes = static_cast<int>(gemm.classes), g = static_cast<int>(gemm.out_gcd);
  const std::int64_t t0 = gemm.out_stride * position + gemm.out_origin;
  int row = 0;
  while (row < 16 && column + row < gemm.columns) {
    const std::int64_t channel = tiling.by_classes.divide(static_cast<std::uint32_t>(column + row));
    const int first = static_cast<int>(column + row - channel * classes);
    const int here = min(classes - first, 16 - row);
    // The block that holds a channel's last class also writes the phases that no tap reaches.
    const int slots = (first + here == classes ? static_cast<int>(gemm.phase_classes) - first : here) * g;
    const float offset = bias != nullptr ? static_cast<float>(bias[first_bias + channel]) : 0.0F;
    T* to = out + (row_of_sample + channel) * gemm.out_length;
    const int step_p = 32 / slots, step_r = 32 - step_p * slots;
    int p = lane / slots, r = lane - p * slots;
    while (p < kPassPositions) {
      const int a = g == 1 ? r : static_cast<int>(tiling.by_gcd.divide(static_cast<std::uint32_t>(r)));
      const int b = r - a * g;
      const std::int64_t t = t0 + gemm.out_stride * p + (first + a) * gemm.out_class_step + b;
      const float sum = b == 0 && a < here ? staging[(row + a) * kStagingPitch + p] : 0.0F;
      if (t >= 0 && t < gemm.out_length) to[t] = static_cast<T>(finish(sum, offset));
      p += step_p;
      r += step_r;
      if (r >= slots) r -= slots, ++p;
    }
    row += here;
  }
}

template <class T, int kN, class Place>
__device__ __forceinline__ void store_tile(const TapGemm& gemm, const Tiling& tiling, const Place& own,
                                           const T* __restrict__ bias, const Epilogue& epilogue, int exponent, float* staging,
                                           int lane, T* __restrict__ out, const float (&sums)[kN / 2]) {
  const bool simple = exponent >= -126 && exponent <= 127;
  const Finish finish{simple ? __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23) : 1.0F, simple ? 0 : exponent,
                      epilogue};
  const std::int64_t first_bias = own.g * gemm.out_channels;
  const std::int64_t row_of_sample = own.n * gemm.G * gemm.out_channels + first_bias;
  const int row = lane / 4, q = lane % 4;
#pragma unroll
  for (int pass = 0; pass < kN / kPassPositions; ++pass) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPassPositions / 8; ++i) {
      const int at = (pass * (kPassPositions / 8) + i) * 4;
      float* to = staging + row * kStagingPitch + 8 * i + 2 * q;
      *reinterpret_cast<float2*>(to) = make_float2(sums[at], sums[at + 1]);
      *reinterpret_cast<float2*>(to + 8 * kStagingPitch) = make_float2(sums[at + 2], sums[at + 3]);
    }
    __syncwarp();
    store_pass<T>(gemm, tiling, row_of_sample, own.column, own.position + pass * kPassPositions, bias, first_bias, finish,
                  staging, lane, out);
  }
}

}  // namespace polyphase::cuda::tensor_core
