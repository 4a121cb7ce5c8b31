// The vector kernels of Algorithm::depthwise for f32.
#include "cuda/conv/depthwise_vector_launch.cuh"

namespace polyphase::cuda::depthwise {

template void vector_gather_as<float>(const VectorPlan&, ConvDirection, const float*, const float*, const float*, float*,
                                      cudaStream_t);
template void vector_wgrad_as<float>(const VectorPlan&, const float*, const float*, float*, cudaStream_t);

}  // namespace polyphase::cuda::depthwise
