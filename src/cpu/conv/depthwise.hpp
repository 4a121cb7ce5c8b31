#pragma once
// Depthwise convolutions (C_in == G, any C_out/G). They are limited by memory, so each row is read once, processed in L1 and
// written once. Internal to cpu/.

#include <optional>
#include <string>

#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Why this problem is not depthwise, or nothing.
[[nodiscard]] std::optional<std::string> depthwise_can_implement(const ConvProblem& problem, ConvDirection direction);

/// Arguments as for phase_gemm_gather.
void depthwise_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                      void* out);

/// Arguments as for phase_gemm_wgrad.
void depthwise_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w);

}  // namespace polyphase::cpu
