#pragma once
// Weights whose gradient is a sum of few products. Two halves keep a product to 2^-21 in the worst case, eight roundings of
// f32, which a sum of many products never adds up to but one of few may. So of Precision::fp32 those sums are done with FFMA,
// on either path; where all of a problem's are, they alone. Forward and dgrad have none: kLeastChannels products each at least.

#include <algorithm>
#include <cstdint>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr std::int64_t kLeastTerms = 8;  // of a sum of products of two halves: docs/precision.md

/// How many products tap k's weights are sums of.
[[nodiscard]] constexpr std::int64_t terms_of_tap(const ConvProblem& problem, std::int64_t k) {
  // Position i of x meets y at first + S*i.
  const std::int64_t first = k * problem.D - problem.P_l, room = problem.L_out - 1 - first;
  const std::int64_t lowest = first < 0 ? (problem.S - 1 - first) / problem.S : 0;
  const std::int64_t end = room < 0 ? 0 : std::min(room / problem.S + 1, problem.L_in);
  return problem.N * std::max<std::int64_t>(end - lowest, 0);
}

/// Which taps' sums have at least one product and fewer than kLeastTerms.
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

/// Computes the weights of taps with fewer than kLeastTerms products, in f32: a thread each, sample behind sample.
void wgrad_few(const WgradCall& call);

}  // namespace polyphase::cuda::tensor_core
