#include "cuda/reduce/reduce_kernel.cuh"

namespace polyphase::cuda {

void reduce_f16(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  reduce_as<__half>(op, out, in, stream);
}

}  // namespace polyphase::cuda
