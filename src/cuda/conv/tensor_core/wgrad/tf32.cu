#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_tf32(const WgradCall& call) { launch_wgrad<ScaledF16>(call); }

}  // namespace polyphase::cuda::tensor_core
