// The vector kernels of Algorithm::depthwise for bf16.
#include "cuda/conv/depthwise_vector_launch.cuh"

namespace polyphase::cuda::depthwise {

template void vector_gather_as<__nv_bfloat16>(const VectorPlan&, ConvDirection, const __nv_bfloat16*, const __nv_bfloat16*,
                                              const __nv_bfloat16*, __nv_bfloat16*, cudaStream_t);
template void vector_wgrad_as<__nv_bfloat16>(const VectorPlan&, const __nv_bfloat16*, const __nv_bfloat16*, float*,
                                             cudaStream_t);

}  // namespace polyphase::cuda::depthwise
