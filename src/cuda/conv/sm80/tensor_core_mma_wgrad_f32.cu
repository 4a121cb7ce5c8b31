#include "cuda/conv/sm80/tensor_core_mma_wgrad_launch.cuh"

namespace polyphase::cuda::tensor_core {

template void mma_wgrad<WideSplit>(const WgradCall& call, const MmaWgradSteps& steps);

}  // namespace polyphase::cuda::tensor_core
