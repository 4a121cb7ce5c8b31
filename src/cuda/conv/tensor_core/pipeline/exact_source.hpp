#pragma once
// The arrays that suspect sums are recomputed from.

#include "conv/problem.hpp"

namespace polyphase::cuda::tensor_core {

/// The problem as it was before operands were made of it.
struct ExactSource {
  ConvProblem problem;
  bool is_forward;
  const float* source;
  const float* w;
};

}  // namespace polyphase::cuda::tensor_core
