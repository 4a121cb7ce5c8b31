#pragma once
// Convolutions on the CPU, on plain contiguous arrays: a problem, pointers, and the thread count of cpu/threads.hpp.

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Why `algorithm` cannot compute this problem on the CPU, or nothing if it can. `automatic` can compute every problem.
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction,
                                                       Algorithm algorithm);

/// The algorithm that `automatic` uses for this problem: `depthwise` if it applies and is faster, else `gemm`.
[[nodiscard]] Algorithm choose(const ConvProblem& problem, ConvDirection direction);

/// y = forward(x, w) + bias. Arrays are contiguous, of `problem.dtype` (f32, f64, f16, bf16; 16-bit types accumulate in f32);
/// `bias` (C_out) may be null. Every element of y is written. N and either length may be zero. The bits depend only on the
/// problem and the algorithm, not on the thread count, and are the same every run. `automatic` in tf32 may use minimal
/// filtering, outside a LengthInvariantGuard. Throws NotImplemented with can_implement's
/// reason, and DTypeError for i64.
void conv_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y, Algorithm algorithm,
                  Precision precision = Precision::ieee);

/// x = dgrad(y, w) + bias; `bias` (C_in) may be null. This is also Conv1d's forward.
void conv_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x, Algorithm algorithm,
                Precision precision = Precision::ieee);

/// w = wgrad(x, y): overwritten, not accumulated.
void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm);

}  // namespace polyphase::cpu
