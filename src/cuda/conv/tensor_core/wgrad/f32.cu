#include "cuda/conv/tensor_core/wgrad/launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_split(const WgradCall& call) { launch_wgrad<SplitF16>(call); }

}  // namespace polyphase::cuda::tensor_core
