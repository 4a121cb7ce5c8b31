#include "cuda/conv/sm90/tensor_core_resident_rows.hpp"

#include <ostream>

#include "cuda/conv/sm90/tensor_core_resident_rows_launch.cuh"

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

bool resident_rows_fuse(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, int device) {
  if (epilogue.is_late() || !epilogue.is_light()) return false;
  if (problem.dtype == DType::f32) return true;
  bool carries = false;
  with_rows_kernel<Half>(make_tap_gemm(problem, direction), nullptr, nullptr, properties(device),
                         [&](auto, const RowSteps& steps) { carries = steps.store_classes != 0; });
  return carries;
}

void resident_rows_gather(const Gather& call) {
  if (call.problem.dtype != DType::f32) return gather_rows_of_16_bits(call);
  if (call.precision == Precision::tf32) return gather_rows<OneHalf>(call);
  return gather_rows<SplitHalf>(call);
}

}  // namespace polyphase::cuda::tensor_core
