#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

Stride1Tiling stride1_tiling(const ConvProblem& problem, ConvDirection direction, Precision precision, const void* source,
                             const void* out, const DeviceProperties& gpu) {
  const TapGemm gemm = make_tap_gemm(problem, direction);
  Stride1Tiling found{};
  const auto keep = [&](auto, const Stride1Tiling& tiling) { found = tiling; };
  if (problem.dtype != DType::f32)
    with_stride1_kernel<F16>(gemm, source, out, gpu, keep);
  else if (precision == Precision::tf32)
    with_stride1_kernel<ScaledF16>(gemm, source, out, gpu, keep);
  else
    with_stride1_kernel<SplitF16>(gemm, source, out, gpu, keep);
  return found;
}

bool stride1_fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Precision precision,
                   int device, const void* source, const void* out) {
  if (!epilogue.is_light()) return false;
  if (problem.dtype == DType::f32 && !epilogue.has_aux()) return true;
  if (problem.dtype != DType::f32 && epilogue.has_aux()) return false;  // hardly sooner than a launch
  const Stride1Tiling tiling = stride1_tiling(problem, direction, precision, source, out, properties(device));
  if (!epilogue.has_aux()) return tiling.store_classes != 0;
  constexpr std::int64_t kPair = 2 * sizeof(float);
  return tiling.stores_pairs && tiling.store_classes == 0 && (epilogue.residual | epilogue.derivative) % kPair == 0;
}

void stride1_gather(const Gather& call) {
  if (call.problem.dtype != DType::f32) return gather_stride1_16bit(call);
  if (call.epilogue.has_aux()) return gather_stride1_aux(call);
  if (call.precision == Precision::tf32) return gather_stride1<ScaledF16>(call);
  return gather_stride1<SplitF16>(call);
}

}  // namespace polyphase::cuda::tensor_core
