#include "cuda/conv/sm90/tensor_core_wgrad_launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_brain(const WgradCall& call) { launch_wgrad<WgradBrain>(call); }

}  // namespace polyphase::cuda::tensor_core
