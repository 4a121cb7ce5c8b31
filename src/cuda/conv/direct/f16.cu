// The direct kernel for f16.
#include "cuda/conv/direct/launch.cuh"

namespace polyphase::cuda::direct {

template void gather_as<__half>(const ConvProblem&, ConvDirection, const __half*, const Weights&, const __half*, __half*,
                                const Epilogue&, int, cudaStream_t, int, int);

}  // namespace polyphase::cuda::direct
