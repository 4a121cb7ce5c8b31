#pragma once
// Launches of kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/stationary/kernel.cuh"
#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Tiles with twice the positions if one part leaves room for them.
template <class Operand>
StationaryTiling stationary_tiling_of(const TapGemm& gemm, const Alignment& at, const DeviceProperties& gpu) {
  StationaryShape shape{256, Operand::kParts, sizeof(typename Operand::Source), at.source % 4 == 0, at.out == 0};
  if constexpr (Operand::kParts == 1) {
    const StationaryTiling tiling = make_stationary_tiling(gemm, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (tiling.count > 0) return tiling;
  }
  shape.positions = 128;
  return make_stationary_tiling(gemm, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

template <class Operand, bool kAux>
auto stationary_kernel_of(const StationaryTiling& tiling) {
  constexpr bool kMayPair = sizeof(typename Operand::Source) == 2;
  if constexpr (Operand::kParts == 2)
    return stationary_kernel<Operand, false, 128, kAux>;
  else
    return tiling.positions == 256 ? stationary_kernel<Operand, kMayPair, 256, kAux>
                                   : stationary_kernel<Operand, false, 128, kAux>;
}

template <class Operand, bool kAux>
void launch_stationary(const Gather& call) {
  using T = typename Operand::Source;
  const StationaryTiling tiling =
      stationary_tiling_of<Operand>(call.gemm, alignment_of(call.source, call.out), properties(call.device));
  const auto packed = cached_weights<Operand>(call, tiling, kStationaryColumns);
  const WideGather wide(call);
  const Sampled<Operand> sampled(call, {}, wide.marks(&packed->template as<WeightHeader>()->small));
  sampled.launch(stationary_kernel_of<Operand, kAux>(tiling), tiling.grid, kStationaryThreads, tiling.shared_bytes, call.gemm,
                 tiling, call.epilogue, static_cast<const T*>(call.source), packed->template as<unsigned char>(),
                 static_cast<const T*>(call.bias), static_cast<T*>(call.out), sampled.header(), wide.exact());
  check_launch("conv tensor_core: stationary");
  wide.launch(sampled.header(), &packed->template as<WeightHeader>()->largest);
}

/// kAux: with a residual or a derivative.
template <bool kAux>
void gather_stationary(const Gather& call) {
  with_operand(call.problem, call.precision, [&]<class Operand>() { launch_stationary<Operand, kAux>(call); });
}

/// stationary_gather() for an epilogue with a residual or a derivative, compiled separately.
void stationary_gather_aux(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
