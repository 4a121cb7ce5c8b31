#pragma once
// Forward and dgrad of stride 1 in f32 with fewer multiplications (cpu/conv/minimal_plan.hpp). Internal to cpu/.
//
// The sums and differences of inputs and of weights are rounded, so an error is relative to the largest of the numbers that are
// added, not to each product. Where many numbers of like size make up a sum, the errors are those of plain sums or smaller.
// Where few do, they could be larger than any multiple of them: one loud sample among quiet ones, a filter with one tap. So
//   - the weights of each output must be spread over the channels and be of like magnitude in all taps, or gemm computes the
//     problem;
//   - the input's positions that are added must be spread over the channels in each window, and not be far louder than what
//     the taps that read them take of it, or gemm computes the tile.
// The spread is measured as (sum |v|)^2 / sum v^2, the number of equal numbers that would have these sums.

#include <cstdint>

#include "conv/problem.hpp"

namespace polyphase::cpu {

/// Whether this way is faster than gemm, judged by the problem alone.
[[nodiscard]] bool minimal_filter_pays(const ConvProblem& problem, ConvDirection direction);

/// Whether it can compute the problem at all.
[[nodiscard]] bool minimal_filter_can_implement(const ConvProblem& problem, ConvDirection direction);

/// out = forward(in = x) or dgrad(in = y), plus a bias per output channel if it is not null. Arrays as in cpu/conv/conv.hpp.
/// Returns how many positions, summed over samples, gemm has computed.
std::int64_t minimal_filter_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w,
                                   const void* bias, void* out);

}  // namespace polyphase::cpu
