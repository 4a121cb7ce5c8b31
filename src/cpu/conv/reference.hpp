#pragma once
// The convolutions as plain sums, the reference for all other algorithms. Start reading here. Internal to cpu/.

#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Arguments as in cpu/conv/conv.hpp. All dtypes are computed in double and rounded once.
void reference_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y);
void reference_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x);
void reference_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w);

}  // namespace polyphase::cpu
