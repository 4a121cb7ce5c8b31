// The vector kernels of Algorithm::depthwise for f16.
#include "cuda/conv/depthwise_vector_launch.cuh"

namespace polyphase::cuda::depthwise {

template void vector_gather_as<__half>(const VectorPlan&, ConvDirection, const __half*, const __half*, const __half*, __half*,
                                       cudaStream_t);
template void vector_wgrad_as<__half>(const VectorPlan&, const __half*, const __half*, float*, cudaStream_t);

}  // namespace polyphase::cuda::depthwise
