#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

void gather_rows_of_16_bits(const Gather& call) {
  if (call.problem.dtype == DType::f16) return gather_rows<Half>(call);
  gather_rows<Brain>(call);
}

}  // namespace polyphase::cuda::tensor_core
