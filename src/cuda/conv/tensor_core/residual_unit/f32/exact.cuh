#pragma once
// The blocks of a residual unit of f32 that one scale does not suit: by mma.sync of tf32 numbers, which have the exponents of
// f32.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/activation.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tf32.cuh"

namespace polyphase::cuda::tensor_core {

/// What the exact kernel needs of a unit: channels, positions of its operand's rows, weights (C, C, K), biases and Snake's
/// parameters, or null.
struct UnitExact {
  int channels, pitch;
  bool is_snake;
  const float *weights[2], *bias[2];
  const float *alpha[2], *beta[2];
};

/// A finite number stays finite.
__device__ __forceinline__ float finite_tf32(float value) {
  const float rounded = ptx::to_tf32(value);
  return isinf(rounded) ? __uint_as_float(__float_as_uint(value) & 0xffffe000U) : rounded;
}

__device__ __forceinline__ float activated_exactly(const UnitTiling& tiling, const UnitExact& unit, int conv, int channel,
                                                   float v) {
  if (unit.is_snake) return SnakeFunction<float, false>(unit.alpha[conv][channel], unit.beta[conv][channel])(v);
  return v < 0.0F ? TapGemm::low(tiling.slope[conv], v) : v;
}

/// sums += the products of a convolution: 16 channels from `channel` on, 128 positions from `first` on.
/// operand[channel][pitch].
__device__ __forceinline__ void multiply_exactly(const UnitExact& unit, const float* operand, int conv, int taps, int step,
                                                 int channel, int first, int lane, float (&sums)[16][4]) {
  const float* const own =
      unit.weights[conv] + (static_cast<std::int64_t>(channel + lane / 4) * unit.channels + lane % 4) * taps;
  const std::int64_t rows = static_cast<std::int64_t>(8) * unit.channels * taps;
  for (int tap = 0; tap < taps; ++tap)
    for (int ci = 0; ci < unit.channels; ci += 8) {
      const float* const w = own + ci * taps + tap;
      const float read[4] = {w[0], w[rows], w[4 * taps], w[rows + 4 * taps]};
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = __float_as_uint(finite_tf32(read[i]));
      const float* const from = operand + (ci + lane % 4) * unit.pitch + first + tap * step + lane / 4;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const std::uint32_t b[2] = {__float_as_uint(from[8 * j]), __float_as_uint(from[8 * j + 4 * unit.pitch])};
        ptx::multiply_add_tf32(sums[j], a, b);
      }
    }
}

/// Computes the marked blocks. A warp has 16 channels and 128 positions; thread (g, q) of it the sums of mma.cuh.
__global__ void __launch_bounds__(512, 1)
    f32_residual_unit_exact_kernel(const __grid_constant__ UnitTiling tiling, const __grid_constant__ UnitExact unit,
                                   const float* __restrict__ x, const unsigned char* __restrict__ marks,
                                   float* __restrict__ out) {
  extern __shared__ __align__(16) float operand[];
  wait_for_grid_before();
  let_dependents_start();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lane = thread % 32;
  const int groups = unit.channels / 16, channel = thread / 32 % groups * 16, first = thread / 32 / groups * 128;
  const auto blocks = static_cast<int>(tiling.blocks), grid = static_cast<int>(gridDim.x);
  for (int begin = static_cast<int>(blockIdx.x); begin < blocks; begin += grid * threads) {
    const int looked_at = begin + thread * grid;
    if (__syncthreads_or(looked_at < blocks && marks[looked_at] != 0) == 0) continue;
    for (int index = begin; index < blocks && index < begin + grid * threads; index += grid) {
      if (marks[index] == 0) continue;
      const int sample = index / tiling.tiles, at = index % tiling.tiles * tiling.tile;
      const float* const from = x + static_cast<std::int64_t>(sample) * unit.channels * tiling.length;
      float* const to = out + static_cast<std::int64_t>(sample) * unit.channels * tiling.length;
      __syncthreads();
      for (int i = thread; i < unit.channels * unit.pitch; i += threads) {
        const int of = i / unit.pitch, position = at - tiling.before + i % unit.pitch;
        const bool exists = position >= 0 && position < tiling.length;
        const float v = exists ? from[static_cast<std::int64_t>(of) * tiling.length + position] : 0.0F;
        operand[i] = exists ? finite_tf32(activated_exactly(tiling, unit, 0, of, v)) : 0.0F;
      }
      __syncthreads();
      float sums[16][4] = {};
      multiply_exactly(unit, operand, 0, tiling.taps[0], tiling.step[0], channel, first, lane, sums);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        const int of = channel + lane / 4 + i / 2 % 2 * 8, place = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int position = at - tiling.pad + place;
        const float v = sums[i / 4][i % 4] + (unit.bias[0] != nullptr ? unit.bias[0][of] : 0.0F);
        operand[of * unit.pitch + place] =
            position >= 0 && position < tiling.length ? finite_tf32(activated_exactly(tiling, unit, 1, of, v)) : 0.0F;
        sums[i / 4][i % 4] = 0;
      }
      __syncthreads();
      multiply_exactly(unit, operand, 1, tiling.taps[1], tiling.step[1], channel, first, lane, sums);
      const int count = min(tiling.tile, tiling.length - at);
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        const int of = channel + lane / 4 + i / 2 % 2 * 8, place = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (place >= count) continue;
        const std::int64_t own = static_cast<std::int64_t>(of) * tiling.length + at + place;
        to[own] = from[own] + (sums[i / 4][i % 4] + (unit.bias[1] != nullptr ? unit.bias[1][of] : 0.0F));
      }
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
