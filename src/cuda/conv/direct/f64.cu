// The direct kernel for f64.
#include "cuda/conv/direct/launch.cuh"

namespace polyphase::cuda::direct {

template void gather_as<double>(const ConvProblem&, ConvDirection, const double*, const Weights&, const double*, double*,
                                const Epilogue&, int, cudaStream_t, int, int);

}  // namespace polyphase::cuda::direct
