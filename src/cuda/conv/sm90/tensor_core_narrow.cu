#include "cuda/conv/sm90/tensor_core_narrow.cuh"

#include <ostream>

#include "cuda/conv/sm90/tensor_core_kept.cuh"
#include "cuda/conv/sm90/tensor_core_narrow.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
NarrowSteps steps_of(const TapGemm& form, const void* out, int device) {
  const DeviceProperties& gpu = properties(device);
  const NarrowShape shape{Operand::kParts, sizeof(typename Operand::Source), reinterpret_cast<std::uintptr_t>(out) % 32 == 0};
  return make_narrow_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

/// The kernel with the fewest products that holds all of a tile's.
template <class Operand>
auto kernel_of(const NarrowSteps& steps) {
  if (steps.is_spread) return narrow_kernel<Operand, kSpreadDepths, false, true>;
  if constexpr (Operand::kParts == 2) {
    if (!steps.is_stacked)
      return steps.depths <= 6 ? narrow_kernel<Operand, 6, false, false> : narrow_kernel<Operand, 10, false, false>;
    return steps.depths <= 12 ? narrow_kernel<Operand, 12, true, false> : narrow_kernel<Operand, 20, true, false>;
  } else {
    return steps.depths <= 10 ? narrow_kernel<Operand, 10, false, false> : narrow_kernel<Operand, 20, false, false>;
  }
}

template <class Operand>
void launch(const Gather& call) {
  using T = typename Operand::Source;
  const NarrowSteps steps = steps_of<Operand>(call.form, call.out, call.device);
  const auto packed = kept_weights<Operand>(call, steps, steps.columns);
  const DrawnMemory<Operand> order(steps, steps.is_drawn, call);
  const Sampled<Operand> sampled(call, order.words(), order.counters());
  sampled.launch(kernel_of<Operand>(steps), steps.grid, kNarrowThreads, steps.shared_bytes, call.form, steps,
                 static_cast<const T*>(call.source), packed->template as<unsigned char>(), static_cast<const T*>(call.bias),
                 call.epilogue, static_cast<T*>(call.out), sampled.header(), sampled.exact(), DrawnOrder{order.words()});
  check_launch("conv tensor_core: narrow");
}

}  // namespace

bool narrow_activates(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* out, int device) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (problem.dtype == DType::f16 || problem.dtype == DType::bf16) return !steps_of<Half>(form, out, device).is_spread;
  if (precision == Precision::tf32) return !steps_of<OneHalf>(form, out, device).is_spread;
  return !steps_of<SplitHalf>(form, out, device).is_spread;
}

void narrow_gather(const Gather& call) {
  if (call.problem.dtype == DType::f16) return launch<Half>(call);
  if (call.problem.dtype == DType::bf16) return launch<Brain>(call);
  if (call.precision == Precision::tf32) return launch<OneHalf>(call);
  return launch<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
