// Instances of the stride1 kernel for f32 with a residual or a derivative (Stride1Stores::aux).

#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

void gather_stride1_aux(const Gather& call) {
  if (call.precision == Precision::tf32) return gather_stride1<ScaledF16, true>(call);
  return gather_stride1<SplitF16, true>(call);
}

}  // namespace polyphase::cuda::tensor_core
