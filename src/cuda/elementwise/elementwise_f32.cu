#include "cuda/elementwise/elementwise_kernel.cuh"

namespace polyphase::cuda {

void map_f32(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  map_as<float>(op, out, inputs, scalars, stream);
}

}  // namespace polyphase::cuda
