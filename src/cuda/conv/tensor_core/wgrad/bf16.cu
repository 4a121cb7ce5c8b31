#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_brain(const WgradCall& call) { launch_wgrad<WgradBrain>(call); }

}  // namespace polyphase::cuda::tensor_core
