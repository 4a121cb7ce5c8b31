#pragma once
// The CPU's convolutions, on plain contiguous arrays. No tensors here: a problem, pointers, and the thread count of
// cpu/threads.hpp.

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Why `algorithm` cannot compute this problem on the CPU, or nothing where it can. `automatic` can do every problem.
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction,
                                                       Algorithm algorithm);

/// What `automatic` stands for on this problem: `depthwise` where it applies and wins, else `gemm`.
[[nodiscard]] Algorithm choose(const ConvProblem& problem, ConvDirection direction);

/// y = forward(x, w) + bias. Arrays are contiguous, of `problem.dtype` (f32, f64, f16, bf16; halves accumulate in f32);
/// `bias` (C_out) may be null. Every element of y is written. N, or either length, may be zero.
/// Bits depend only on the problem and the algorithm (not on run, and not on the thread count). Throws NotImplemented with
/// can_implement's reason, DTypeError for i64.
void conv_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y, Algorithm algorithm);

/// x = dgrad(y, w) + bias, where `bias` (C_in) may be null: this is also Conv1d's forward.
void conv_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x, Algorithm algorithm);

/// w = wgrad(x, y): overwritten, not accumulated.
void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm);

}  // namespace polyphase::cpu
