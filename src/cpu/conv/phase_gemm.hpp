#pragma once
// The polyphase GEMM on the CPU: forward and dgrad as one gather (cpu/conv/phase_plan.hpp), wgrad as a product over positions.
// No zero is multiplied except at the ends of rows (cpu/conv/recompute_non_finite.hpp), and no column buffer is written.
// Internal to cpu/. Read cpu/conv/reference.cpp first.

#include <optional>
#include <string>

#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Why the polyphase GEMM cannot compute this problem, or nothing.
[[nodiscard]] std::optional<std::string> phase_gemm_can_implement(const ConvProblem& problem, ConvDirection direction);

/// out = forward(in = x) or dgrad(in = y), plus a bias per output channel if it is not null. Arrays as in cpu/conv/conv.hpp.
void phase_gemm_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                       void* out);

/// The same for the positions [begin, end) of sample n alone, for a problem of one group and stride 1 with finite weights.
void phase_gemm_positions(const ConvProblem& problem, ConvDirection direction, std::int64_t n, std::int64_t begin,
                          std::int64_t end, const void* in, const void* w, const void* bias, void* out);

/// w = wgrad(x, y); no length and no N may be 0.
void phase_gemm_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w);

}  // namespace polyphase::cpu
