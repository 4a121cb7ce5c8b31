#include "cuda/elementwise/elementwise_kernel.cuh"

namespace polyphase::cuda {

void map_f16(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  map_as<__half>(op, out, inputs, scalars, stream);
}

}  // namespace polyphase::cuda
