#include "cuda/elementwise/elementwise_kernel.cuh"

namespace polyphase::cuda {

void map_f64(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  map_as<double>(op, out, inputs, scalars, stream);
}

}  // namespace polyphase::cuda
