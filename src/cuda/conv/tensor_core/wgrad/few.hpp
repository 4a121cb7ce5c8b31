#pragma once
// Weights whose gradient is a sum of few products. Two halves keep a product to 2^-21 in the worst case, which is eight
// roundings of f32. A sum of many products averages that out, a sum of few may not. So with Precision::fp32 such sums are
// computed with FFMA on either path, and alone if all sums of a problem are of this kind. Forward and dgrad have no such sums:
// each has at least kLeastChannels products.

#include <algorithm>
#include <cstdint>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr std::int64_t kLeastTerms = 8;  // per sum of products of two halves: docs/precision.md

/// How many products the sums of tap k's weights have.
[[nodiscard]] constexpr std::int64_t terms_of_tap(const ConvProblem& problem, std::int64_t k) {
  // Position i of x pairs with y at first + S*i.
  const std::int64_t first = k * problem.D - problem.P_l, room = problem.L_out - 1 - first;
  const std::int64_t lowest = first < 0 ? (problem.S - 1 - first) / problem.S : 0;
  const std::int64_t end = room < 0 ? 0 : std::min(room / problem.S + 1, problem.L_in);
  return problem.N * std::max<std::int64_t>(end - lowest, 0);
}

/// Which taps' sums have at least one product but fewer than kLeastTerms.
enum class FewTerms : std::uint8_t { none, some, all };
[[nodiscard]] constexpr FewTerms few_terms(const ConvProblem& problem, Precision precision) {
  if (problem.dtype != DType::f32 || precision == Precision::tf32) return FewTerms::none;
  bool is_some = false, is_all = true;
  for (std::int64_t k = 0; k < problem.K; ++k) {
    const std::int64_t terms = terms_of_tap(problem, k);
    is_some = is_some || (terms > 0 && terms < kLeastTerms);
    is_all = is_all && terms < kLeastTerms;
  }
  return is_all ? FewTerms::all : is_some ? FewTerms::some : FewTerms::none;
}

/// Computes the weights of taps with fewer than kLeastTerms products in f32, one thread each, sample after sample.
void wgrad_few(const WgradCall& call);

}  // namespace polyphase::cuda::tensor_core
