#pragma once
// The blocks of a residual unit of f32 that one scale does not suit: the kernel of kernel.cuh with operands of tf32, which have
// the exponents of f32 and take twice the time and the shared memory of one f16.
//
// A block's source and middle are multiplied by a power of two, so that few of their numbers are subnormal and no sum
// overflows: the largest magnitude times the sum of a channel's weights' magnitudes is below 2^102.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/passes.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/source.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/sums.cuh"

namespace polyphase::cuda::tensor_core {

/// How many of this thread block's blocks are marked. For all threads.
__device__ __forceinline__ int count_marked(const unsigned char* __restrict__ marks, unsigned blocks) {
  int count = 0;
  for (unsigned begin = blockIdx.x; begin < blocks; begin += gridDim.x * blockDim.x) {
    const unsigned own = begin + threadIdx.x * gridDim.x;
    count += __syncthreads_count(own < blocks && marks[own] != 0);
  }
  return count;
}

/// Writes what the sums of a convolution's channels need to shared memory. Returns kMarkedTarget without the exponent of the
/// largest sum of weights, which is what the largest magnitude of a source may become.
template <int kChannels>
__device__ __forceinline__ int load_marked_channels(const UnitF32Weights& packed, int conv, UnitChannel* channels, int thread) {
  const UnitMarkedChannel* const all = packed.marked_channels[conv];
  if (thread < kChannels)
    channels[thread] = {all[thread].inverse, packed.bias[conv] != nullptr ? packed.bias[conv][thread] : 0.0F, 0.0F, 0.0F};
  float largest = 1;
#pragma unroll 8
  for (int i = 0; i < kChannels; ++i) largest = fmaxf(largest, all[i].sum);
  return kMarkedTarget + 127 - static_cast<int>(__float_as_uint(largest) >> 23);
}

/// Computes the blocks whose marks[block] is not zero. Weights and channels as f32_residual_unit_pack_kernel writes them;
/// biases may be null.
template <UnitKind kKind, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    f32_residual_unit_marked_kernel(const __grid_constant__ UnitTiling tiling, const float* __restrict__ x,
                                    const __grid_constant__ UnitF32Weights packed,
                                    const __grid_constant__ UnitSnakes<float> snakes, float* __restrict__ out,
                                    const unsigned char* __restrict__ marks, const __grid_constant__ UnitAverage average) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kChannels = Shape::kChannels;
  constexpr bool kMayAverage = kKind != UnitKind::snake;
  const auto [memory, layout, thread, warp, lane] = unit_thread<Shape>(tiling);
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  wait_for_grid_before();
  let_dependents_start();
  const int marked = count_marked(marks, blocks);
  if (marked == 0) return;
  const UnitWeights<Shape> weights(tiling, packed.of_marked[0], packed.of_marked[1], marked);
  if (lane == 0) weights.begin(layout, warp);
  auto* const largest_of = reinterpret_cast<UnitLargest*>(memory + layout.kBiases);
  if (thread < 2) largest_of[thread] = {};
  auto* const pairs = reinterpret_cast<SnakePair*>(memory + layout.snakes);
  if constexpr (kKind == UnitKind::snake) load_snake_pairs<kChannels>(snakes, pairs, thread);
  auto* const channels =
      reinterpret_cast<UnitChannel*>(memory + layout.snakes + (kKind == UnitKind::snake ? Shape::kSnakeBytes : 0));
  const int targets[2] = {load_marked_channels<kChannels>(packed, 0, channels, thread),
                          load_marked_channels<kChannels>(packed, 1, channels + kChannels, thread)};
  __syncthreads();
  if (Shape::kHasProducer && warp == Shape::kWarps) return weights.copy_all(layout, lane);
  using Activation = UnitMarkedActivation<kKind, Shape::kPasses == 1>;
  const Activation before_first{{tiling.slope[0], pairs}, snakes.alpha[0], snakes.beta[0]},
      before_second{{tiling.slope[1], pairs + kChannels / 2}, snakes.alpha[1], snakes.beta[1]};
  const auto synchronize = [] { ptx::named_barrier(1, 32 * Shape::kWarps); };
  const auto any_of = [](bool value) { return ptx::named_barrier_or(1, 32 * Shape::kWarps, value); };
  UnitProducts<Shape> products{tiling, layout, weights, warp, lane, weights.progress(warp)};
  UnitF32Sums<Shape> sums(tiling, {products.operand(), products.operand(), warp, lane});
  int turn = 0;
#pragma unroll 1
  for (unsigned index = blockIdx.x; index < blocks; index += gridDim.x) {
    if (marks[index] == 0) continue;
    const UnitBlock block(tiling, index);
    UnitLargest& largest = largest_of[turn];
    bool is_unfit = false;  // no number is
    bool is_infinite = false;
    MarkedScale scale(0, 0);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {  // both halves for their largest number, both to store them
      UnitF32Source<Shape> source(warp, i % 2);
      const float own = source.load(tiling, x, block, before_first, lane, is_unfit);
      is_infinite |= isinf(own);
      if (i < 2) join_largest(&largest.half[0], own, lane);
      if (i == 1) {
        synchronize();  // no warp stages outputs any more either
        scale = MarkedScale(__uint_as_float(largest.half[0]), targets[0]);
      }
      if (i >= 2) source.store_marked(tiling, memory + layout.kOperand, scale.by, lane);
    }
    ptx::fence_async_shared();
    bool has_infinity = any_of(is_infinite);
    turn ^= 1;
    if (thread == 0) largest_of[turn] = {};

    multiply_marked(products, 0, memory, has_infinity, sums);
    sums.finish(channels, scale.inverse, scale.lower);
    const UnitRange middle{tiling.pad - block.begin, tiling.pad - block.begin + tiling.length};
    const float own = sums.activate(before_second, middle, is_unfit);
    join_largest(&largest.middle, own, lane);
    has_infinity = any_of(isinf(own));  // no warp reads the source's operand any more
    scale = MarkedScale(__uint_as_float(largest.middle), targets[1]);
    sums.store_marked(memory + layout.kOperand, scale.by);
    ptx::fence_async_shared();
    synchronize();

    multiply_marked(products, 1, memory, has_infinity, sums);
    sums.finish(channels + kChannels, scale.inverse, scale.lower);
    synchronize();  // no warp reads the middle any more
    store_unit_sums<kMayAverage>(sums, memory + layout.kOperand, UnitSample<Shape>(tiling, x, out, average, block.sample),
                                 block.begin, min(tiling.tile, tiling.length - block.begin));
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
