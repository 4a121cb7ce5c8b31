#include "cuda/conv/sm90/tensor_core_narrow.cuh"

#include <ostream>

#include "cuda/conv/sm90/tensor_core_launch.cuh"
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
  if constexpr (Operand::kParts == 2) {
    if (!steps.is_stacked) return steps.depths <= 6 ? narrow_kernel<Operand, 6, false> : narrow_kernel<Operand, 10, false>;
    return steps.depths <= 12 ? narrow_kernel<Operand, 12, true> : narrow_kernel<Operand, 20, true>;
  } else {
    return steps.depths <= 10 ? narrow_kernel<Operand, 10, false> : narrow_kernel<Operand, 20, false>;
  }
}

template <class Operand>
void launch(const Gather& call) {
  using T = typename Operand::Source;
  const NarrowSteps steps = steps_of<Operand>(call.form, call.out, call.device);
  const Prepared<Operand> prepared(call, steps, steps.columns);
  auto* kernel = kernel_of<Operand>(steps);
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  kernel<<<steps.grid, kNarrowThreads, static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(
      call.form, steps, static_cast<const T*>(call.source), prepared.packed(), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), prepared.state(), prepared.tile_split());
  check_launch("conv tensor_core: narrow");
  prepared.repair(call, steps, steps.columns, kNarrowPositions);
}

}  // namespace

bool narrow_pays(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (problem.dtype == DType::f32)
    return (precision == Precision::tf32 ? steps_of<OneHalf>(form, nullptr, device)
                                         : steps_of<SplitHalf>(form, nullptr, device))
               .count > 0;
  // Of 16 bits the other form converts two positions at once where neither side is strided, and stages phases faster.
  if (form.classes > 1 || (form.source_stride == 1 && form.out_stride == 1)) return false;
  return steps_of<Half>(form, nullptr, device).count > 0;
}

void narrow_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights,
                   const void* bias, void* out, Precision precision, int device, cudaStream_t stream) {
  const Gather call{problem, direction, make_tap_gemm(problem, direction), source, weights.data(), bias, out, {},
                    device,  stream};
  if (problem.dtype == DType::f16) return launch<Half>(call);
  if (problem.dtype == DType::bf16) return launch<Brain>(call);
  if (precision == Precision::tf32) return launch<OneHalf>(call);
  return launch<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
