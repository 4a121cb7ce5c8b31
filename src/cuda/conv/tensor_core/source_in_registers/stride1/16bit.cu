#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

void gather_stride1_16bit(const Gather& call) {
  if (call.problem.dtype == DType::f16) return gather_stride1<F16>(call);
  gather_stride1<Bf16>(call);
}

}  // namespace polyphase::cuda::tensor_core
