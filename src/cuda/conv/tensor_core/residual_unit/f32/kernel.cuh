#pragma once
// A residual unit of f32 to the accuracy of tf32 or of f32, on wgmma (sm_90a): the kernel of residual_unit/kernel.cuh with
// operands of f16 that each block of positions scales for itself (scale.cuh).
//
// The source goes from memory to registers, where its largest magnitude is found, and is stored scaled; the same happens to the
// sums of the first convolution. The source is read again where the outputs are stored: added in f32, it would not survive the
// sums of the tensor cores.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/passes.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/source.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/sums.cuh"

namespace polyphase::cuda::tensor_core {

/// Writes what the sums of a convolution's channels need to shared memory, and waits for all threads. Returns whether weights
/// have lost bits.
template <class Shape>
__device__ __forceinline__ bool load_unit_channels(const UnitF32Weights& packed, int conv, UnitChannel* channels, int thread) {
  bool has_lost = false;
  if (thread < Shape::kChannels) {
    UnitChannel own = packed.channels[conv][thread];
    has_lost = own.of_weights != 0;
    if (packed.bias[conv] != nullptr) own.bias = packed.bias[conv][thread];
    channels[thread] = own;
  }
  return __syncthreads_or(has_lost) != 0;
}

/// marks[block]: whether marked.cuh has to compute the block. Weights and channels as f32_residual_unit_pack_kernel writes
/// them; biases may be null.
template <UnitKind kKind, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    f32_residual_unit_kernel(const __grid_constant__ UnitTiling tiling, const float* __restrict__ x,
                             const __grid_constant__ UnitF32Weights packed, const __grid_constant__ UnitSnakes<float> snakes,
                             float* __restrict__ out, unsigned char* __restrict__ marks,
                             const __grid_constant__ UnitAverage average) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kChannels = Shape::kChannels;
  constexpr bool kMayAverage = kKind != UnitKind::snake;
  const auto [memory, layout, thread, warp, lane] = unit_thread<Shape>(tiling);
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  const UnitWeights<Shape> weights(tiling, packed.weights[0], packed.weights[1],
                                   static_cast<int>((blocks - blockIdx.x + gridDim.x - 1) / gridDim.x));
  wait_for_grid_before();
  if (lane == 0) weights.begin(layout, warp);
  auto* const largest_of = reinterpret_cast<UnitLargest*>(memory + layout.kBiases);
  if (thread < 2) largest_of[thread] = {};
  auto* const pairs = reinterpret_cast<SnakePair*>(memory + layout.snakes);
  if constexpr (kKind == UnitKind::snake) load_snake_pairs<kChannels>(snakes, pairs, thread);
  auto* const channels =
      reinterpret_cast<UnitChannel*>(memory + layout.snakes + (kKind == UnitKind::snake ? Shape::kSnakeBytes : 0));
  const bool is_lossy[2] = {load_unit_channels<Shape>(packed, 0, channels, thread),
                            load_unit_channels<Shape>(packed, 1, channels + kChannels, thread)};
  if (Shape::kHasProducer && warp == Shape::kWarps) return weights.copy_all(layout, lane);
  using Activation = UnitF32Activation<kKind, Shape::kPasses == 1>;
  const Activation before_first{tiling.slope[0], pairs}, before_second{tiling.slope[1], pairs + kChannels / 2};
  const auto synchronize = [] { ptx::named_barrier(1, 32 * Shape::kWarps); };
  const auto any_of = [](bool value) { return ptx::named_barrier_or(1, 32 * Shape::kWarps, value); };
  UnitProducts<Shape> products{tiling, layout, weights, warp, lane, weights.progress(warp)};
  UnitF32Sums<Shape> sums(tiling, {products.operand(), products.operand(), warp, lane});
  int turn = 0;
#pragma unroll 1
  for (unsigned index = blockIdx.x; index < blocks; index += gridDim.x, turn ^= 1) {
    const UnitBlock block(tiling, index);
    UnitLargest& largest = largest_of[turn];
    if (index + gridDim.x >= blocks) let_dependents_start();
    bool is_unfit = false;
    BlockScale scale(0, kUnitSourceTarget);
    int attempt = 0;
#pragma unroll 1
    for (;; ++attempt) {  // at most twice
      int small = 0;
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        UnitF32Source<Shape> source(warp, half);
        const float own = source.load(tiling, x, block, before_first, lane, is_unfit);
        if (attempt == 0) join_largest(&largest.half[half], own, lane);
        if (attempt == 0 && half == 0) {
          synchronize();  // no warp stages outputs any more either
          scale = BlockScale(largest.half[0], kUnitSourceTarget);
        }
        small += source.store(tiling, memory + layout.kOperand, scale, lane);
      }
      if (small != 0) atomicAdd(&largest.small[attempt], small);
      // After the source, which this block waits for; a barrier follows, where the warps are whole again.
      if constexpr (kMayAverage) prefetch_unit_average(sums, average, block);
      ptx::fence_async_shared();
      synchronize();
      const std::uint32_t most = max(largest.half[0], largest.half[1]);
      if (attempt == 1 || scale.suits(most)) break;
      scale = BlockScale(most, kUnitSourceTarget);
    }
    if (thread == 0) largest_of[turn ^ 1] = {};
    is_unfit |= !scale.fits;

    multiply_f16(products, 0, sums);
    const UnitRange middle{tiling.pad - block.begin, tiling.pad - block.begin + tiling.length};
    if (const int small = largest.small[attempt]; small != 0 || is_lossy[0])
      is_unfit |= sums.is_coarse(channels, static_cast<float>(small), middle);
    sums.finish(channels, scale.inverse, scale.lower());
    join_largest(&largest.middle, sums.activate(before_second, middle, is_unfit), lane);
    synchronize();  // no warp reads the source's operand any more
    if (Shape::kWhole && thread == 0) weights.copy_whole(layout, 1);
    scale = BlockScale(largest.middle, kUnitTarget);
    is_unfit |= !scale.fits;
    if (const int small = sums.store_operand(scale); small != 0) atomicAdd(&largest.small[2], small);
    ptx::fence_async_shared();
    synchronize();

    multiply_f16(products, 1, sums);
    const int count = min(tiling.tile, tiling.length - block.begin);
    if (const int small = largest.small[2]; small != 0 || is_lossy[1])
      is_unfit |= sums.is_coarse(channels + kChannels, static_cast<float>(small), {0, count});
    sums.finish(channels + kChannels, scale.inverse, scale.lower());
    const bool is_marked = any_of(is_unfit);  // no warp reads the middle any more either
    if (Shape::kWhole && thread == 0 && index + gridDim.x < blocks) weights.copy_whole(layout, 0);
    if (thread == 0) marks[index] = is_marked ? 1 : 0;
    // The outputs may replace what they are averaged with, which marked.cuh needs. No branch: lanes would count as apart after
    // it.
    store_unit_sums<kMayAverage>(sums, memory + layout.kOperand, UnitSample<Shape>(tiling, x, out, average, block.sample),
                                 block.begin, is_marked ? 0 : count);
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
