#pragma once
// The arrays that suspect sums are recomputed from.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/recompute/wide_blocks.cuh"

namespace polyphase::cuda::tensor_core {

/// A problem and its arrays as they were before operands were made of them.
template <class T = float>
struct ExactSource {
  ConvProblem problem;
  bool is_forward;
  const T* source;
  const T* w;
  WideBlocks wide{};  // of f32
};

/// With the counts of source numbers that operands lose, by position.
template <class T>
struct FlaggedSource : ExactSource<T> {
  const std::uint32_t* flags;   // of the source, as source_kernel writes them; null: none counts
  const OperandHeader* header;  // of the source
};

/// That of a launch.
template <class T>
[[nodiscard]] ExactSource<T> exact_source(const Gather& call) {
  return {call.problem, call.direction == ConvDirection::forward, static_cast<const T*>(call.source),
          static_cast<const T*>(call.weights.data())};
}

}  // namespace polyphase::cuda::tensor_core
