#include "cuda/elementwise/elementwise_kernel.cuh"

namespace polyphase::cuda {

void map_bf16(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  map_as<__nv_bfloat16>(op, out, inputs, scalars, stream);
}

}  // namespace polyphase::cuda
