// The direct kernel for bf16.
#include "cuda/conv/direct/launch.cuh"

namespace polyphase::cuda::direct {

template void gather_as<__nv_bfloat16>(const ConvProblem&, ConvDirection, const __nv_bfloat16*, const Weights&,
                                       const __nv_bfloat16*, __nv_bfloat16*, const Epilogue&, int, cudaStream_t, int, int);

}  // namespace polyphase::cuda::direct
