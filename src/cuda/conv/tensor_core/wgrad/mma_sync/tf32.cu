#include "cuda/conv/tensor_core/wgrad/mma_sync/launch.cuh"

namespace polyphase::cuda::tensor_core {

template void mma_wgrad<WideScaled>(const WgradCall& call, const MmaWgradSteps& steps);

}  // namespace polyphase::cuda::tensor_core
