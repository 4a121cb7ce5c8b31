#pragma once
// How many 16-bit numbers stand for one of a problem's.

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

namespace polyphase::cuda::tensor_core {

/// Two halves of an f32, one of it as Precision::tf32, or the number itself.
[[nodiscard]] constexpr int parts_of(const ConvProblem& problem, Precision precision) {
  return problem.dtype == DType::f32 && precision != Precision::tf32 ? 2 : 1;
}

}  // namespace polyphase::cuda::tensor_core
