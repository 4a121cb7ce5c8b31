#include "cuda/conv/sm90/tensor_core_resident.cuh"

#include <ostream>

#include "cuda/conv/sm90/tensor_core_launch.cuh"
#include "cuda/conv/sm90/tensor_core_narrow.hpp"
#include "cuda/conv/sm90/tensor_core_resident.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Tiles of twice the positions where one part leaves room for them.
template <class Operand>
ResidentSteps steps_of(const TapGemm& form, const void* source, int device) {
  const DeviceProperties& gpu = properties(device);
  ResidentShape shape{256, Operand::kParts, sizeof(typename Operand::Source),
                      reinterpret_cast<std::uintptr_t>(source) % 4 == 0};
  if constexpr (Operand::kParts == 1) {
    const ResidentSteps steps = make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (steps.count > 0) return steps;
  }
  shape.positions = 128;
  return make_resident_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

template <class Operand>
auto kernel_of(const ResidentSteps& steps) {
  constexpr bool kMayPair = sizeof(typename Operand::Source) == 2;
  if constexpr (Operand::kParts == 2)
    return resident_kernel<Operand, false, 128>;
  else
    return steps.positions == 256 ? resident_kernel<Operand, kMayPair, 256> : resident_kernel<Operand, false, 128>;
}

template <class Operand>
void launch(const Gather& call) {
  using T = typename Operand::Source;
  const ResidentSteps steps = steps_of<Operand>(call.form, call.source, call.device);
  const Prepared<Operand> prepared(call, steps, kResidentColumns);
  auto* kernel = kernel_of<Operand>(steps);
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  kernel<<<steps.grid, kResidentThreads, static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(
      call.form, steps, call.epilogue, static_cast<const T*>(call.source), prepared.packed(), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), prepared.state(), prepared.tile_split());
  check_launch("conv tensor_core: resident");
  prepared.repair(call, steps, kResidentColumns, steps.positions);
}

}  // namespace

bool resident_fits(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  const TapGemm form = make_tap_gemm(problem, direction);
  // One element past a boundary: what fits there fits everywhere.
  const auto* worst = reinterpret_cast<const void*>(std::uintptr_t{2});
  if (problem.dtype != DType::f32) return steps_of<Half>(form, worst, device).count > 0;
  return (precision == Precision::tf32 ? steps_of<OneHalf>(form, nullptr, device) : steps_of<SplitHalf>(form, nullptr, device))
             .count > 0;
}

void resident_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights,
                     const void* bias, void* out, const Epilogue& epilogue, Precision precision, int device,
                     cudaStream_t stream) {
  if (!epilogue.is_needed() && narrow_pays(problem, direction, precision, device))
    return narrow_gather(problem, direction, source, weights, bias, out, precision, device, stream);
  if (resident_rows_fit(problem, direction, precision, source, device))
    return resident_rows_gather(problem, direction, source, weights, bias, out, epilogue, precision, device, stream);
  const Gather call{problem, direction, make_tap_gemm(problem, direction), source, weights.data(), bias, out, epilogue,
                    device,  stream};
  if (problem.dtype == DType::f16) return launch<Half>(call);
  if (problem.dtype == DType::bf16) return launch<Brain>(call);
  if (precision == Precision::tf32) return launch<OneHalf>(call);
  return launch<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
