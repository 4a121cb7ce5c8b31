// Weights of 64 columns in shared memory, with a residual or through a derivative, which come to where outputs are staged.

#include <ostream>

#include "cuda/conv/tensor_core/both_in_shared/stationary/launch.cuh"

namespace polyphase::cuda::tensor_core {

void stationary_gather_aux(const Gather& call) { gather_stationary<true>(call); }

}  // namespace polyphase::cuda::tensor_core
