#pragma once
// Launches of kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/stationary/kernel.cuh"
#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Tiles of twice the positions where one part leaves room for them.
template <class Operand>
ResidentSteps resident_steps_of(const TapGemm& form, const void* source, const void* out, const DeviceProperties& gpu) {
  ResidentShape shape{256, Operand::kParts, sizeof(typename Operand::Source), reinterpret_cast<std::uintptr_t>(source) % 4 == 0,
                      reinterpret_cast<std::uintptr_t>(out) % 32 == 0};
  if constexpr (Operand::kParts == 1) {
    const ResidentSteps steps = make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (steps.count > 0) return steps;
  }
  shape.positions = 128;
  return make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

template <class Operand, bool kLate>
auto resident_kernel_of(const ResidentSteps& steps) {
  constexpr bool kMayPair = sizeof(typename Operand::Source) == 2;
  if constexpr (Operand::kParts == 2)
    return resident_kernel<Operand, false, 128, kLate>;
  else
    return steps.positions == 256 ? resident_kernel<Operand, kMayPair, 256, kLate>
                                  : resident_kernel<Operand, false, 128, kLate>;
}

template <class Operand, bool kLate>
void launch_resident(const Gather& call) {
  using T = typename Operand::Source;
  const ResidentSteps steps = resident_steps_of<Operand>(call.form, call.source, call.out, properties(call.device));
  const auto packed = kept_weights<Operand>(call, steps, kResidentColumns);
  const Sampled<Operand> sampled(call);
  sampled.launch(resident_kernel_of<Operand, kLate>(steps), steps.grid, kResidentThreads, steps.shared_bytes, call.form, steps,
                 call.epilogue, static_cast<const T*>(call.source), packed->template as<unsigned char>(),
                 static_cast<const T*>(call.bias), static_cast<T*>(call.out), sampled.header(), sampled.exact());
  check_launch("conv tensor_core: resident");
}

/// kLate: with a residual or through a derivative.
template <bool kLate>
void gather_resident(const Gather& call) {
  with_operand(call, [&]<class Operand>() { launch_resident<Operand, kLate>(call); });
}

/// resident_gather() of what has a residual or goes through a derivative, compiled by itself.
void resident_gather_late(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
