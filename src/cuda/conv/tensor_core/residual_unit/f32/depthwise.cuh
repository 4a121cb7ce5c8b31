#pragma once
// A residual unit of f32 whose first convolution is depthwise and whose second has one tap, with Snake before both (the units
// of SNAC): the kernels of kernel.cuh and marked.cuh, but the first convolution is FFMA over rows in shared memory (rows.cuh),
// and its results are scaled and stored as the operand from the registers that they are summed in. The weights of the second
// convolution stay in shared memory.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/kernel.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/marked.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/rows.cuh"

namespace polyphase::cuda::tensor_core {

/// What both kernels have in shared memory behind the weights.
template <class Shape>
struct DepthwiseTables {
  SnakePair* pairs;       // of both activations
  UnitChannel* channels;  // of the second convolution
  float* taps;            // load_unit_taps()
  __device__ __forceinline__ DepthwiseTables(unsigned char* memory, const UnitLayout<Shape>& layout)
      : pairs(reinterpret_cast<SnakePair*>(memory + layout.snakes)),
        channels(reinterpret_cast<UnitChannel*>(memory + layout.snakes + Shape::kSnakeBytes)),
        taps(reinterpret_cast<float*>(channels + Shape::kChannels)) {}
};

/// marks[block]: whether the next kernel has to compute the block. packed: of the second convolution, as
/// f32_residual_unit_pack_kernel writes it.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    f32_depthwise_unit_kernel(const __grid_constant__ UnitTiling tiling, const float* __restrict__ x,
                              const UnitDepthwise<float> depthwise, const __grid_constant__ UnitF32Weights packed,
                              const __grid_constant__ UnitSnakes<float> snakes, float* __restrict__ out,
                              unsigned char* __restrict__ marks, const __grid_constant__ UnitAverage average) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kChannels = Shape::kChannels;
  const auto [memory, layout, thread, warp, lane] = unit_thread<Shape>(tiling);
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  const UnitWeights<Shape> weights(tiling, nullptr, packed.weights[1], 0);
  wait_for_grid_before();
  if (thread == 0) {
    ptx::mbarrier_init(layout.full(0), 1);
    ptx::fence_mbarrier_init();
    weights.copy_whole(layout, 1);
  }
  UnitLargest& largest = *reinterpret_cast<UnitLargest*>(memory + layout.kBiases);
  if (thread == 0) largest = {};
  const DepthwiseTables<Shape> tables(memory, layout);
  load_snake_pairs<kChannels>(snakes, tables.pairs, thread);
  load_unit_taps<kChannels>(depthwise, tiling.row_taps, tables.taps, thread, Shape::kThreads);
  const bool is_lossy = load_unit_channels<Shape>(packed, 1, tables.channels, thread);
  using Activation = UnitF32Activation<UnitKind::snake, Shape::kPasses == 1>;
  const Activation before_first{0, tables.pairs}, before_second{0, tables.pairs + kChannels / 2};
  const auto synchronize = [] { ptx::named_barrier(1, Shape::kThreads); };
  auto* const rows = reinterpret_cast<float*>(memory + layout.kOperand);
  UnitProducts<Shape> products{tiling, layout, weights, warp, lane, {}};
#pragma unroll 1
  for (unsigned index = blockIdx.x; index < blocks; index += gridDim.x) {
    const UnitBlock block(tiling, index);
    if (index + gridDim.x >= blocks) let_dependents_start();
    bool is_unfit = false;
    make_unit_rows<Shape>(tiling, x, block, before_first, rows, warp, lane, is_unfit, synchronize);
    synchronize();

    BlockScale scale(0, kUnitTarget);
    {
      UnitRowSums<Shape> middle(warp, lane);
      middle.template convolve<float>(tiling, rows, tables.taps);
      join_largest(&largest.middle, middle.activate(before_second, tiling.length - block.begin, is_unfit), lane);
      synchronize();  // no warp reads the rows any more
      scale = BlockScale(largest.middle, kUnitTarget);
      is_unfit |= !scale.fits;
      if (const int small = middle.store(tiling, memory + layout.kOperand, scale, lane); small != 0)
        atomicAdd(&largest.small[2], small);
    }
    ptx::fence_async_shared();
    synchronize();

    int own = lane;
    ptx::opaque(own);  // as in make_unit_rows()
    UnitF32Sums<Shape> sums(tiling, {products.operand(), products.operand(), warp, own});
    products.at = {};  // the weights stay
    multiply_f16(products, 1, sums);
    const int count = min(tiling.tile, tiling.length - block.begin);
    if (const int small = largest.small[2]; small != 0 || is_lossy)
      is_unfit |= sums.is_coarse(tables.channels, static_cast<float>(small), {0, count});
    sums.finish(tables.channels, scale.inverse, scale.lower());
    const bool is_marked = ptx::named_barrier_or(1, Shape::kThreads, is_unfit);  // no warp reads the middle any more either
    if (thread == 0) {
      marks[index] = is_marked ? 1 : 0;
      largest = {};
    }
    store_unit_sums<false>(sums, memory + layout.kOperand, UnitSample<Shape>(tiling, x, out, average, block.sample),
                           block.begin, is_marked ? 0 : count);
  }
#endif
}

/// Computes the blocks whose marks[block] is not zero.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    f32_depthwise_unit_marked_kernel(const __grid_constant__ UnitTiling tiling, const float* __restrict__ x,
                                     const UnitDepthwise<float> depthwise, const __grid_constant__ UnitF32Weights packed,
                                     const __grid_constant__ UnitSnakes<float> snakes, float* __restrict__ out,
                                     const unsigned char* __restrict__ marks, const __grid_constant__ UnitAverage average) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kChannels = Shape::kChannels;
  const auto [memory, layout, thread, warp, lane] = unit_thread<Shape>(tiling);
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  wait_for_grid_before();
  let_dependents_start();
  const int marked = count_marked(marks, blocks);
  if (marked == 0) return;
  const UnitWeights<Shape> weights(tiling, nullptr, packed.of_marked[1], marked);
  if (lane == 0) weights.begin(layout, warp);
  UnitLargest& largest = *reinterpret_cast<UnitLargest*>(memory + layout.kBiases);
  if (thread == 0) largest = {};
  const DepthwiseTables<Shape> tables(memory, layout);
  load_snake_pairs<kChannels>(snakes, tables.pairs, thread);
  load_unit_taps<kChannels>(depthwise, tiling.row_taps, tables.taps, thread, Shape::kThreads);
  const int target = load_marked_channels<kChannels>(packed, 1, tables.channels, thread);
  __syncthreads();
  using Activation = UnitMarkedActivation<UnitKind::snake, Shape::kPasses == 1>;
  const Activation before_first{{0, tables.pairs}, snakes.alpha[0], snakes.beta[0]},
      before_second{{0, tables.pairs + kChannels / 2}, snakes.alpha[1], snakes.beta[1]};
  const auto synchronize = [] { ptx::named_barrier(1, Shape::kThreads); };
  auto* const rows = reinterpret_cast<float*>(memory + layout.kOperand);
  UnitProducts<Shape> products{tiling, layout, weights, warp, lane, weights.progress(warp)};
  UnitF32Sums<Shape> sums(tiling, {products.operand(), products.operand(), warp, lane});
#pragma unroll 1
  for (unsigned index = blockIdx.x; index < blocks; index += gridDim.x) {
    if (marks[index] == 0) continue;
    const UnitBlock block(tiling, index);
    bool is_unfit = false;  // no number is
    make_unit_rows<Shape>(tiling, x, block, before_first, rows, warp, lane, is_unfit, synchronize);
    synchronize();

    MarkedScale scale(0, 0);
    bool has_infinity = false;
    {
      UnitRowSums<Shape> middle(warp, lane);
      middle.template convolve<float>(tiling, rows, tables.taps);
      const float own = middle.activate(before_second, tiling.length - block.begin, is_unfit);
      join_largest(&largest.middle, own, lane);
      has_infinity = ptx::named_barrier_or(1, Shape::kThreads, isinf(own));  // no warp reads the rows any more
      scale = MarkedScale(__uint_as_float(largest.middle), target);
      middle.store_marked(tiling, memory + layout.kOperand, scale.by, lane);
    }
    ptx::fence_async_shared();
    synchronize();

    multiply_marked(products, 1, memory, has_infinity, sums);
    sums.finish(tables.channels, scale.inverse, scale.lower);
    synchronize();  // no warp reads the middle any more
    if (thread == 0) largest = {};
    store_unit_sums<false>(sums, memory + layout.kOperand, UnitSample<Shape>(tiling, x, out, average, block.sample),
                           block.begin, min(tiling.tile, tiling.length - block.begin));
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
