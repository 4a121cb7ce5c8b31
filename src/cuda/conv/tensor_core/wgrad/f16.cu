#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_f16(const WgradCall& call) { launch_wgrad<F16>(call); }

}  // namespace polyphase::cuda::tensor_core
