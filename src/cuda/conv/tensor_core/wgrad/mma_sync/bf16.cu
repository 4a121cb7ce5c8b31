#include "cuda/conv/tensor_core/wgrad/mma_sync/launch.cuh"

namespace polyphase::cuda::tensor_core {

template void mma_wgrad<Bf16>(const WgradCall& call, const MmaWgradTiling& tiling);

}  // namespace polyphase::cuda::tensor_core
