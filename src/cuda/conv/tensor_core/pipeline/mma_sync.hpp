#pragma once
// When mma.sync replaces wgmma, and its ring of stages.

namespace polyphase::cuda::tensor_core {

inline constexpr int kMmaStagesMost = 4;

/// Whether Algorithm::tensor_core uses mma.sync instead of wgmma on a GPU of compute capability `arch` (90 for 9.0): on 8.0 to
/// 8.9, on 10.0 and later, and on 9.0 if this build has no code for sm_90a or the environment variable POLYPHASE_TENSOR_CORE is
/// `sm80` (read once).
[[nodiscard]] bool uses_mma(int arch);

/// Whether the wide kernel computes suspect sums where the by_tile kernel could (recompute/wide.hpp), for tests: if
/// POLYPHASE_TENSOR_CORE is `wide`.
[[nodiscard]] bool uses_wide();

}  // namespace polyphase::cuda::tensor_core
