#pragma once
// Channel-wise convolutions (C_in == G, any C_out/G): memory bound, so each row is read once, worked on in the L1 and written
// once. Internal to cpu/.

#include <optional>
#include <string>

#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Why this problem is not depthwise's, or nothing.
[[nodiscard]] std::optional<std::string> depthwise_can_implement(const ConvProblem& problem, ConvDirection direction);

/// Arguments as of phase_gemm_gather.
void depthwise_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                      void* out);

/// Arguments as of phase_gemm_wgrad.
void depthwise_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w);

}  // namespace polyphase::cpu
