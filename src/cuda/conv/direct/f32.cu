// The direct kernel for f32.
#include "cuda/conv/direct/launch.cuh"

namespace polyphase::cuda::direct {

template void gather_as<float>(const ConvProblem&, ConvDirection, const float*, const Weights&, const float*, float*,
                               const Epilogue&, int, cudaStream_t, int, int);

}  // namespace polyphase::cuda::direct
