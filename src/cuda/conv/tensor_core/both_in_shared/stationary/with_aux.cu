// Instances of the stationary kernel with a residual or a derivative, which are loaded into the staging.

#include <ostream>

#include "cuda/conv/tensor_core/both_in_shared/stationary/launch.cuh"

namespace polyphase::cuda::tensor_core {

void stationary_gather_aux(const Gather& call) { gather_stationary<true>(call); }

}  // namespace polyphase::cuda::tensor_core
