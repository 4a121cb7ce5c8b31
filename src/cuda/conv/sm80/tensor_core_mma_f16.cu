#include "cuda/conv/sm80/tensor_core_mma_launch.cuh"

namespace polyphase::cuda::tensor_core {

template void mma_multiply<WideHalf>(const MmaCall<__half>& call, int shape);

}  // namespace polyphase::cuda::tensor_core
