#pragma once
// Launches of kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

template <class Operand>
BulkTiling bulk_tiling_of(const TapGemm& gemm, const void* out, int device) {
  const DeviceProperties& gpu = properties(device);
  const BulkShape shape{Operand::kParts, sizeof(typename Operand::Source), reinterpret_cast<std::uintptr_t>(out) % 32 == 0};
  return make_bulk_tiling(gemm, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

/// The kernel with the fewest products that holds all of a tile's; with kAux the one with a residual or a derivative.
template <class Operand, bool kAux>
auto source_bulk_kernel_of(const BulkTiling& tiling) {
  constexpr BulkStore kStore = kAux ? BulkStore::aux : BulkStore::rows;
  if constexpr (!kAux)
    if (tiling.is_spread) return source_bulk_kernel<Operand, kSpreadDepths, false, BulkStore::spread>;
  if constexpr (Operand::kParts == 2) {
    if (!tiling.is_stacked)
      return tiling.depths <= 6 ? source_bulk_kernel<Operand, 6, false, kStore>
                                : source_bulk_kernel<Operand, 10, false, kStore>;
    return tiling.depths <= 12 ? source_bulk_kernel<Operand, 12, true, kStore>
                               : source_bulk_kernel<Operand, kChainMost, true, kStore>;
  } else {
    return tiling.depths <= 10 ? source_bulk_kernel<Operand, 10, false, kStore>
                               : source_bulk_kernel<Operand, 20, false, kStore>;
  }
}

template <class Operand, bool kAux>
void launch_source_bulk(const Gather& call) {
  using T = typename Operand::Source;
  const BulkTiling tiling = bulk_tiling_of<Operand>(call.gemm, call.out, call.device);
  const auto packed = cached_weights<Operand>(call, tiling, tiling.columns);
  const DynamicMemory<Operand> order(tiling, tiling.is_dynamic, call);
  const WideGather wide(call);
  const Sampled<Operand> sampled(call, order.counters(), wide.marks(&packed->template as<WeightHeader>()->small));
  sampled.launch(source_bulk_kernel_of<Operand, kAux>(tiling), tiling.grid, kBulkThreads, tiling.shared_bytes, call.gemm,
                 tiling, static_cast<const T*>(call.source), packed->template as<unsigned char>(),
                 static_cast<const T*>(call.bias), call.epilogue, static_cast<T*>(call.out), sampled.header(), wide.exact(),
                 DynamicOrder{order.words()});
  check_launch("conv tensor_core: source_bulk");
  wide.launch(sampled.header(), &packed->template as<WeightHeader>()->largest);
}

/// kAux: with a residual or a derivative.
template <bool kAux>
void gather_source_bulk(const Gather& call) {
  with_operand(call.problem, call.precision, [&]<class Operand>() { launch_source_bulk<Operand, kAux>(call); });
}

/// source_bulk_gather() for an epilogue with a residual or a derivative, compiled separately.
void source_bulk_gather_aux(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
