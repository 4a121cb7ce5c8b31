#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_split_wide(const WgradCall& call) { launch_wgrad<Bf16x3>(call); }

}  // namespace polyphase::cuda::tensor_core
