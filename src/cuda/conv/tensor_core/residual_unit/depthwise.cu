// A residual unit of 16 bits whose first convolution is depthwise and whose second has one tap, with Snake before both (the
// units of SNAC). The first is FFMA over rows of f32 in shared memory (f32/rows.cuh), the second wgmma (kernel.cuh), with its
// weights in shared memory all the time. Its results are rounded before x is added, which is read again.

#include "cuda/conv/tensor_core/residual_unit/depthwise.hpp"

#include "cuda/conv/tensor_core/residual_unit/f32/rows.cuh"
#include "cuda/conv/tensor_core/residual_unit/kernel.cuh"
#include "cuda/conv/tensor_core/residual_unit/pack.cuh"

namespace polyphase::cuda::tensor_core {
namespace {

template <class T>
__device__ __noinline__ float snake_of_any(float v, const T* alpha, const T* beta, int channel) {
  return SnakeFunction<float, true>(cuda::convert<float>(alpha[channel]), cuda::convert<float>(beta[channel]))(v);
}

/// Snake of numbers of 16 bits in f32, with the bits of a launch of its own before they are rounded.
template <class T>
struct RowActivation : UnitF32Activation<UnitKind::snake, true> {
  const T *alpha, *beta;  ///< in memory

  template <int kCount, class OfNumber>
  __device__ __forceinline__ void apply(float (&v)[kCount], const OfNumber& of_number, bool&) const {
    apply_by(v, of_number, [&](float(&near)[kCount]) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) near[i] = snake_of_any(v[i], alpha, beta, of_number(i).channel);
    });
  }
};

/// Weights of the second convolution as residual_unit_pack_kernel writes them; its bias may be null. added: x, divided by 1.
template <class Operand, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    depthwise_unit_kernel(const __grid_constant__ UnitTiling tiling, const typename Operand::Source* __restrict__ x,
                          const UnitDepthwise<typename Operand::Source> depthwise,
                          const unsigned char* __restrict__ second_weights,
                          const typename Operand::Source* __restrict__ second_bias,
                          const __grid_constant__ UnitSnakes<typename Operand::Source> snakes,
                          typename Operand::Source* __restrict__ out, const __grid_constant__ UnitAverage added) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Operand::Source;
  using Sums = UnitSumsOfChannels<T, Shape>;
  constexpr int kChannels = Shape::kChannels;
  const auto [memory, layout, thread, warp, lane] = unit_thread<Shape>(tiling);
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  const UnitWeights<Shape> weights(tiling, nullptr, second_weights, 0);
  wait_for_grid_before();
  if (thread == 0) {
    ptx::mbarrier_init(layout.full(0), 1);
    ptx::fence_mbarrier_init();
    weights.copy_whole(layout, 1);
  }
  auto* const biases = reinterpret_cast<float*>(memory + layout.kBiases);
  if (thread < kChannels)
    biases[Sums::bias_place(thread)] = second_bias != nullptr ? cuda::convert<float>(second_bias[thread]) : 0.0F;
  auto* const pairs = reinterpret_cast<SnakePair*>(memory + layout.snakes);
  load_snake_pairs<kChannels>(snakes, pairs, thread);
  auto* const taps = reinterpret_cast<float*>(memory + layout.snakes + Shape::kSnakeBytes);
  load_unit_taps<kChannels>(depthwise, tiling.row_taps, taps, thread, Shape::kThreads);
  __syncthreads();
  const RowActivation<T> before_first{{0, pairs}, snakes.alpha[0], snakes.beta[0]},
      before_second{{0, pairs + kChannels / 2}, snakes.alpha[1], snakes.beta[1]};
  const auto synchronize = [] { ptx::named_barrier(1, Shape::kThreads); };
  const std::uint32_t operand = layout.base + static_cast<std::uint32_t>(layout.kOperand);
  auto* const rows = reinterpret_cast<float*>(memory + layout.kOperand);
  const auto offset = [&](int stage) { return stage_offset<Shape>(stage, 1, tiling.pitch); };
  bool is_unfit = false;  // no number is
#pragma unroll 1
  for (unsigned index = blockIdx.x; index < blocks; index += gridDim.x) {
    const UnitBlock block(tiling, index);
    if (index + gridDim.x >= blocks) let_dependents_start();
    make_unit_rows<Shape>(tiling, x, block, before_first, rows, warp, lane, is_unfit, synchronize);
    synchronize();
    {
      UnitRowSums<Shape> middle(warp, lane);
      middle.template convolve<T>(tiling, rows, taps);
      static_cast<void>(middle.activate(before_second, tiling.length - block.begin, is_unfit));
      synchronize();  // no warp reads the rows any more
      middle.template store_rounded<T>(tiling, memory + layout.kOperand);
    }
    ptx::fence_async_shared();
    synchronize();

    int own = lane;
    ptx::opaque(own);  // as in make_unit_rows()
    Sums sums(tiling, {.operand = operand, .source = operand, .warp = warp, .lane = own});
    sums.begin(biases);
    UnitProgress at{};  // the weights stay
    wait_for_whole(layout, at);
    multiply_unit<Operand, Shape>(layout, operand, tiling.pitch, 0, Shape::kParts, offset, warp, lane, weights, at, sums);
    synchronize();  // no warp reads the middle any more
    sums.stage();
    synchronize();
    store_unit_outputs<T, true, Shape>(tiling, memory + layout.kOperand, out, added, block, warp, own);
  }
#endif
}

template <class Operand, int kChannels>
void launch_depthwise(const ResidualUnit& unit, const UnitTiling& tiling, const void* x, const std::array<UnitConv, 2>& convs,
                      void* out, int device, cudaStream_t stream) {
  using T = typename Operand::Source;
  using Shape = DepthwiseUnitShape<UnitShape<kChannels>, true>;
  const auto second = packed_unit_weights<T>(unit, 1, convs[1].weights, device, stream);
  UnitSnakes<T> snakes{};
  for (std::size_t i = 0; i < 2; ++i)
    snakes.alpha[i] = static_cast<const T*>(convs[i].alpha), snakes.beta[i] = static_cast<const T*>(convs[i].beta);
  const UnitDepthwise<T> depthwise{static_cast<const T*>(convs[0].weights.data()), static_cast<const T*>(convs[0].bias)};
  auto* const kernel = depthwise_unit_kernel<Operand, Shape>;
  allow_shared_memory(kernel, tiling.shared_bytes, 100);
  launch_behind(kernel, static_cast<unsigned>(tiling.thread_blocks), Shape::kThreads,
                static_cast<std::size_t>(tiling.shared_bytes), stream, tiling, static_cast<const T*>(x), depthwise,
                second->template as<unsigned char>(), static_cast<const T*>(convs[1].bias), snakes, static_cast<T*>(out),
                UnitAverage(x, 1, 1));
  check_launch("residual unit of 16 bits, depthwise");
}

}  // namespace

void depthwise_unit(const ResidualUnit& unit, const UnitTiling& tiling, const void* x, const std::array<UnitConv, 2>& convs,
                    void* out, int device, cudaStream_t stream) {
  const bool is_f16 = unit.dtype == DType::f16;
  if (unit.C == 64)
    return is_f16 ? launch_depthwise<F16, 64>(unit, tiling, x, convs, out, device, stream)
                  : launch_depthwise<Bf16, 64>(unit, tiling, x, convs, out, device, stream);
  is_f16 ? launch_depthwise<F16, 128>(unit, tiling, x, convs, out, device, stream)
         : launch_depthwise<Bf16, 128>(unit, tiling, x, convs, out, device, stream);
}

}  // namespace polyphase::cuda::tensor_core
