#include "cuda/conv/sm90/tensor_core_wgrad_launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_long(const WgradCall& call) { launch_wgrad<WgradLong>(call, *call.steps); }

}  // namespace polyphase::cuda::tensor_core
