#include "cuda/conv/sm90/tensor_core_wgrad_launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_split(const WgradCall& call) { launch_wgrad<WgradSplit>(call); }

}  // namespace polyphase::cuda::tensor_core
