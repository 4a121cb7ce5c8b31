#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_tf32_wide(const WgradCall& call) { launch_wgrad<Bf16x2>(call); }

}  // namespace polyphase::cuda::tensor_core
