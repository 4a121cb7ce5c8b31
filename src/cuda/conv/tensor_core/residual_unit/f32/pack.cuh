#pragma once
// The weights of a convolution of a residual unit of f32: f16, scaled by output channel, as residual_unit_pack_kernel lays them
// out, what the sums of each channel need, and tf32 for marked blocks. To the accuracy of f32 (kPasses 3) there are two f16,
// high and low parts, and three tf32: high parts, low parts, and finite high parts, which meet the low parts of a source.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/scale.cuh"
#include "cuda/ptx/tf32.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kUnitF32PackThreads = 128;

/// packed[part][tap][vector of 8 input channels][co][8], of_channels[co] without bias; tf32[part][tap][vector of 4 input
/// channels][co][4] and tf32_channels[co] for marked blocks. A block for each output channel; w (C, C, K).
template <int kPasses>
__global__ void __launch_bounds__(kUnitF32PackThreads)
    f32_residual_unit_pack_kernel(int channels, int taps, const float* __restrict__ w, unsigned char* __restrict__ packed,
                                  UnitChannel* __restrict__ of_channels, float* __restrict__ tf32,
                                  UnitMarkedChannel* __restrict__ tf32_channels) {
  __shared__ float largest_of[kUnitF32PackThreads / 32], sum_of[kUnitF32PackThreads / 32];
  const int co = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x), count = channels * taps;
  const float* const own = w + static_cast<std::int64_t>(co) * count;
  float largest = 0, sum = 0;
  for (int i = thread; i < count; i += kUnitF32PackThreads) largest = fmaxf(largest, fabsf(own[i])), sum += fabsf(own[i]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
    sum += __shfl_xor_sync(0xffffffffU, sum, step);
  }
  if (thread % 32 == 0) largest_of[thread / 32] = largest, sum_of[thread / 32] = sum;
  __syncthreads();
  largest = sum = 0;
#pragma unroll
  for (int i = 0; i < kUnitF32PackThreads / 32; ++i) largest = fmaxf(largest, largest_of[i]), sum += sum_of[i];
  const BlockScale scale(__float_as_uint(largest), kUnitTarget);
  const MarkedScale lifted(fminf(largest, power_of_two(kMarkedWeightTarget)),
                           kMarkedWeightTarget);  // larger ones stay as they are
  ScaledWords words(scale.by);
  for (int i = thread; i < count; i += kUnitF32PackThreads) {
    const int ci = i / taps, tap = i % taps;
    auto* const half =
        reinterpret_cast<std::uint16_t*>(packed) + ((tap * (channels / 8) + ci / 8) * channels + co) * 8 + ci % 8;
    float* const to = tf32 + ((tap * (channels / 4) + ci / 4) * channels + co) * 4 + ci % 4;
    const float v = own[i] * lifted.by, high = ptx::to_finite_tf32(v);
    *to = high;
    if constexpr (kPasses == 1) {
      *half = static_cast<std::uint16_t>(words(own[i] * scale.raise(), 0.0F));
    } else {
      const std::int64_t part = static_cast<std::int64_t>(taps) * channels * channels;
      std::uint32_t low = 0;
      *half = static_cast<std::uint16_t>(words.split(own[i] * scale.raise(), 0.0F, low));
      half[part] = static_cast<std::uint16_t>(low);
      to[part] = isfinite(v) ? ptx::to_tf32(v - high) : 0.0F;
      to[2 * part] = isfinite(v) ? high : 0.0F;
    }
  }
  const int lossy = __syncthreads_count(words.has_small());
  if (thread != 0) return;
  // A small weight loses 2^-25 of numbers below 2^16, and 2^-12 of the sum may be lost.
  float of_weights = lossy != 0 ? 8.0F * static_cast<float>(count) : 0.0F;
  const float inverse = scale.inverse * scale.lower();  // zero: not even a subnormal number
  if (!scale.fits || inverse == 0) of_weights = INFINITY;
  of_channels[co] = {inverse, 0.0F, sum * scale.raise() * scale.by * 0x1p-13F, of_weights};
  tf32_channels[co] = {lifted.inverse, sum * lifted.by};
}

}  // namespace polyphase::cuda::tensor_core
