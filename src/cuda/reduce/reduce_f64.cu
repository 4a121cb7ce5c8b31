#include "cuda/reduce/reduce_kernel.cuh"

namespace polyphase::cuda {

void reduce_f64(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  reduce_as<double>(op, out, in, stream);
}

}  // namespace polyphase::cuda
