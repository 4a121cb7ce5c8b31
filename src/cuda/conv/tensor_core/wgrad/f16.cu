#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_half(const WgradCall& call) { launch_wgrad<WgradHalf>(call); }

}  // namespace polyphase::cuda::tensor_core
