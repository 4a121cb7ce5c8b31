#include "cuda/reduce/reduce_kernel.cuh"

namespace polyphase::cuda {

void reduce_bf16(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  reduce_as<__nv_bfloat16>(op, out, in, stream);
}

}  // namespace polyphase::cuda
