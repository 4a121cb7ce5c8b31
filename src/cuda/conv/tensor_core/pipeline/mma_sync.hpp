#pragma once
// When mma.sync is used instead of wgmma, and its ring of stages.

namespace polyphase::cuda::tensor_core {

inline constexpr int kMmaStagesMost = 4;

/// Whether Algorithm::tensor_core uses mma.sync instead of wgmma on a GPU of that compute capability (90 for 9.0): on 8.0 to
/// 8.9, from 10.0 on, and on 9.0 where this build has no code for sm_90a or the environment variable POLYPHASE_TENSOR_CORE,
/// read once, is `sm80`.
[[nodiscard]] bool uses_mma(int arch);

}  // namespace polyphase::cuda::tensor_core
