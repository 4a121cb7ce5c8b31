#pragma once
// A source whose numbers that operands lose are counted in flags by position, and bits that name suspect sums.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"

namespace polyphase::cuda::tensor_core {

/// The problem as it was before operands were made of it.
template <class T>
struct FlaggedSource {
  ConvProblem problem;
  bool is_forward;
  const T* source;
  const T* w;
  const std::uint32_t* flags;   // of the source, as source_kernel writes them; null: its numbers spoil nothing
  const OperandHeader* header;  // of the source
};

/// Bits of sums, by runs of positions.
template <int kRuns>
struct Suspects {
  std::uint32_t of_run[kRuns] = {};
};

}  // namespace polyphase::cuda::tensor_core
