#pragma once
// Launches of kernel.cuh.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

template <class Operand>
NarrowSteps narrow_steps_of(const TapGemm& form, const void* out, int device) {
  const DeviceProperties& gpu = properties(device);
  const NarrowShape shape{Operand::kParts, sizeof(typename Operand::Source), reinterpret_cast<std::uintptr_t>(out) % 32 == 0};
  return make_narrow_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

/// The kernel with the fewest products that holds all of a tile's; with kLate the one with a residual or through a derivative.
template <class Operand, bool kLate>
auto narrow_kernel_of(const NarrowSteps& steps) {
  constexpr NarrowStore kStore = kLate ? NarrowStore::late : NarrowStore::rows;
  if constexpr (!kLate)
    if (steps.is_spread) return narrow_kernel<Operand, kSpreadDepths, false, NarrowStore::spread>;
  if constexpr (Operand::kParts == 2) {
    if (!steps.is_stacked)
      return steps.depths <= 6 ? narrow_kernel<Operand, 6, false, kStore> : narrow_kernel<Operand, 10, false, kStore>;
    return steps.depths <= 12 ? narrow_kernel<Operand, 12, true, kStore> : narrow_kernel<Operand, 20, true, kStore>;
  } else {
    return steps.depths <= 10 ? narrow_kernel<Operand, 10, false, kStore> : narrow_kernel<Operand, 20, false, kStore>;
  }
}

template <class Operand, bool kLate>
void launch_narrow(const Gather& call) {
  using T = typename Operand::Source;
  const NarrowSteps steps = narrow_steps_of<Operand>(call.form, call.out, call.device);
  const auto packed = kept_weights<Operand>(call, steps, steps.columns);
  const DrawnMemory<Operand> order(steps, steps.is_drawn, call);
  const Sampled<Operand> sampled(call, order.words(), order.counters());
  sampled.launch(narrow_kernel_of<Operand, kLate>(steps), steps.grid, kNarrowThreads, steps.shared_bytes, call.form, steps,
                 static_cast<const T*>(call.source), packed->template as<unsigned char>(), static_cast<const T*>(call.bias),
                 call.epilogue, static_cast<T*>(call.out), sampled.header(), sampled.exact(), DrawnOrder{order.words()});
  check_launch("conv tensor_core: narrow");
}

/// kLate: with a residual or through a derivative.
template <bool kLate>
void gather_narrow(const Gather& call) {
  with_operand(call, [&]<class Operand>() { launch_narrow<Operand, kLate>(call); });
}

/// narrow_gather() of what has a residual or goes through a derivative, compiled by itself.
void narrow_gather_late(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
