#pragma once
// Launches of kernel.cuh.

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Names an instance of stride1_kernel.
template <class Mode, int kN>
struct Stride1Kernel {};

template <class Mode, int kN>
void launch_stride1(Stride1Kernel<Mode, kN>, const Gather& call, const Stride1Tiling& tiling) {
  using Operand = typename Mode::Operand;
  using T = typename Operand::Source;
  const auto packed = cached_weights<Operand>(call, tiling, tiling.columns);
  const std::int64_t counters = tiling.is_dynamic ? tiling.weight_tiles : 0;
  const Buffer order(Operand::kScaled ? static_cast<std::size_t>(Stride1Order::words(tiling)) * sizeof(std::uint32_t) : 0,
                     call.device);
  auto* const dynamic = order.as<std::uint32_t>();
  const WideGather wide(call);
  const Sampled<Operand> sampled(call, {dynamic, static_cast<std::size_t>(counters)},
                                 wide.marks(&packed->template as<WeightHeader>()->small));
  const auto* source = static_cast<const T*>(call.source);
  sampled.launch(stride1_kernel<Mode, kN>, tiling.grid, kStride1Threads, tiling.shared_bytes, call.gemm, tiling,
                 make_stride1_maps(call.gemm, tiling, source, sizeof(T)),
                 make_store_maps(call.gemm, tiling, call.out, sizeof(T)), call.epilogue, source,
                 packed->template as<unsigned char>(), static_cast<const T*>(call.bias), static_cast<T*>(call.out),
                 sampled.header(), wide.exact(), Stride1Order{dynamic});
  check_launch("conv tensor_core: stride1");
  wide.launch(sampled.header(), &packed->template as<WeightHeader>()->largest);
}

/// Calls run(Stride1Kernel<Mode, kN>(), tiling) with the kernel for a problem; with kAux the one with a residual or a
/// derivative. False if there is none.
template <class Operand, bool kAux = false, class Run>
bool with_stride1_kernel(const TapGemm& gemm, const Alignment& at, const DeviceProperties& gpu, const Run& run) {
  const auto attempt = [&]<int kN, int kTaps>() {
    using Traits = Stride1Traits<Operand, kN, kTaps>;
    if (gemm.taps != kTaps || gemm.columns <= kN / 2) return false;
    const Stride1Shape shape{Traits::kHalves,
                             kN,
                             Operand::kParts,
                             sizeof(typename Operand::Source),
                             Traits::kStagingBytes,
                             Traits::kCarryBytes,
                             Traits::kCarryPass,
                             at.source % 16,
                             at.out % 16};
    const Stride1Tiling tiling = make_stride1_tiling(gemm, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (tiling.count == 0) return false;
    const auto run_as = [&]<Stride1Parity kParity>() {
      const auto run_with = [&]<Stride1Stores kStores>() {
        run(Stride1Kernel<Stride1Mode<Operand, Traits::kHalves, kTaps, kParity, kStores>, kN>(), tiling);
      };
      if constexpr (kAux) {
        run_with.template operator()<Stride1Stores::aux>();
      } else {
        if constexpr (Traits::kHalves == 2 && kParity != Stride1Parity::mixed) {
          if (tiling.store_classes != 0) return run_with.template operator()<Stride1Stores::carried>();
        }
        run_with.template operator()<Stride1Stores::tiles>();
      }
    };
    if (tiling.parity == Stride1Parity::even) run_as.template operator()<Stride1Parity::even>();
    if (tiling.parity == Stride1Parity::odd) run_as.template operator()<Stride1Parity::odd>();
    if constexpr (sizeof(typename Operand::Source) == 4) {
      if (tiling.parity == Stride1Parity::mixed) run_as.template operator()<Stride1Parity::mixed>();
    }
    return true;
  };
  return attempt.template operator()<128, 3>() || attempt.template operator()<128, 5>();
}

/// stride1_gather() for f16 and bf16, and for an epilogue with a residual or a derivative, compiled separately.
void gather_stride1_16bit(const Gather& call);
void gather_stride1_aux(const Gather& call);

template <class Operand, bool kAux = false>
void gather_stride1(const Gather& call) {
  with_stride1_kernel<Operand, kAux>(call.gemm, alignment_of(call.source, call.out), properties(call.device),
                                     [&](auto kernel, const Stride1Tiling& tiling) { launch_stride1(kernel, call, tiling); });
}

}  // namespace polyphase::cuda::tensor_core
