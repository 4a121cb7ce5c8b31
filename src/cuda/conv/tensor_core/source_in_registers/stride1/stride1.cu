#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

RowSteps resident_rows_steps(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* source,
                             const void* out, const DeviceProperties& gpu) {
  const TapGemm form = make_tap_gemm(problem, direction);
  RowSteps found{};
  const auto keep = [&](auto, const RowSteps& steps) { found = steps; };
  if (problem.dtype != DType::f32)
    with_rows_kernel<Half>(form, source, out, gpu, keep);
  else if (precision == Precision::tf32)
    with_rows_kernel<OneHalf>(form, source, out, gpu, keep);
  else
    with_rows_kernel<SplitHalf>(form, source, out, gpu, keep);
  return found;
}

bool resident_rows_fuse(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision,
                        int device, const void* source, const void* out) {
  if (!epilogue.is_light()) return false;
  if (problem.dtype == DType::f32 && !epilogue.is_late()) return true;
  if (problem.dtype != DType::f32 && epilogue.is_late()) return false;  // hardly sooner than a launch
  const RowSteps steps = resident_rows_steps(problem, direction, precision, source, out, properties(device));
  if (!epilogue.is_late()) return steps.store_classes != 0;
  constexpr std::int64_t kPair = 2 * sizeof(float);
  return steps.stores_pairs && steps.store_classes == 0 && (epilogue.residual | epilogue.derivative) % kPair == 0;
}

void resident_rows_gather(const Gather& call) {
  if (call.problem.dtype != DType::f32) return gather_rows_of_16_bits(call);
  if (call.epilogue.is_late()) return gather_rows_late(call);
  if (call.precision == Precision::tf32) return gather_rows<OneHalf>(call);
  return gather_rows<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
