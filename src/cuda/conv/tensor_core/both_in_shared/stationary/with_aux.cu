// Weights of 64 columns in shared memory, with a residual or through a derivative, which come to where outputs are staged.

#include <ostream>

#include "cuda/conv/tensor_core/both_in_shared/stationary/launch.cuh"

namespace polyphase::cuda::tensor_core {

void resident_gather_late(const Gather& call) { gather_resident<true>(call); }

}  // namespace polyphase::cuda::tensor_core
