#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/launch.cuh"

namespace polyphase::cuda::tensor_core {

template void mma_multiply<Bf16>(const MmaCall<__nv_bfloat16>& call, int shape);

}  // namespace polyphase::cuda::tensor_core
