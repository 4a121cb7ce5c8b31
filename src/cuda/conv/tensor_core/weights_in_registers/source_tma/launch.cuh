#pragma once
// Launches of kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/kernel.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/maps.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

template <class Mode>
void launch_source_tma(const Gather& call, const TmaTiling& tiling) {
  using Operand = typename Mode::Operand;
  const auto packed = cached_weights<Operand>(call, tiling, tiling.columns);
  const TmaMaps maps = make_tma_maps(call.gemm, tiling, call.source, call.out);
  typename Mode::Aux aux{};
  if constexpr (Mode::kAux) {
    const auto of = [&](std::int64_t distance) {
      return make_tma_aux(call.gemm, tiling, static_cast<const char*>(call.out) + distance);
    };
    aux.of[0] = of(call.epilogue.first_aux());
    if (call.epilogue.has_both()) aux.of[1] = of(call.epilogue.residual);
  }
  const DynamicMemory<Operand> order(tiling, tiling.is_dynamic, call);
  const WideGather wide(call);
  const Sampled<Operand> sampled(call, order.counters(), wide.marks(&packed->template as<WeightHeader>()->small));
  sampled.launch(source_tma_kernel<Mode>, tiling.grid, kTmaThreads, tiling.shared_bytes, call.gemm, tiling, maps, aux,
                 packed->template as<unsigned char>(), static_cast<const float*>(call.bias), static_cast<float*>(call.out),
                 sampled.header(), wide.exact(), call.epilogue, DynamicOrder{order.words()});
  check_launch("conv tensor_core: source_tma");
  wide.launch(sampled.header(), &packed->template as<WeightHeader>()->largest);
}

template <class Operand, int kDepths, bool kHalf, bool kAux>
void launch_source_tma_as(const Gather& call, const TmaTiling& tiling) {
  if (tiling.kind == TmaRows::whole)
    return launch_source_tma<TmaMode<Operand, kDepths, kHalf, TmaRows::whole, kAux>>(call, tiling);
  if (tiling.kind == TmaRows::pairs)
    return launch_source_tma<TmaMode<Operand, kDepths, kHalf, TmaRows::pairs, kAux>>(call, tiling);
  launch_source_tma<TmaMode<Operand, kDepths, kHalf, TmaRows::any, kAux>>(call, tiling);
}

/// The kernel with the fewest products that holds all of a tile's; with kAux the one with a residual, a derivative, or both.
template <class Operand, bool kAux>
void gather_source_tma(const Gather& call) {
  const DeviceProperties& gpu = properties(call.device);
  const TmaTiling tiling = make_tma_tiling(call.gemm, tma_shape_of(Operand::kParts, alignment_of(call.source, call.out)),
                                           gpu.sm_count, gpu.shared_bytes_per_block);
  const int depths = tiling.depths;
  if constexpr (Operand::kParts == 2) {
    if (!tiling.is_half)
      return depths <= 6 ? launch_source_tma_as<Operand, 6, false, kAux>(call, tiling)
                         : launch_source_tma_as<Operand, 10, false, kAux>(call, tiling);
    if (depths <= 6) return launch_source_tma_as<Operand, 6, true, kAux>(call, tiling);
    if (depths <= kTmaWholeDepths) return launch_source_tma_as<Operand, kTmaWholeDepths, true, kAux>(call, tiling);
  } else {
    if (!tiling.is_half)
      return depths <= 10 ? launch_source_tma_as<Operand, 10, false, kAux>(call, tiling)
                          : launch_source_tma_as<Operand, 20, false, kAux>(call, tiling);
  }
  launch_source_tma_as<Operand, 20, true, kAux>(call, tiling);
}

/// source_tma_gather() for an epilogue with a residual or a derivative, compiled separately.
void source_tma_gather_aux(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
