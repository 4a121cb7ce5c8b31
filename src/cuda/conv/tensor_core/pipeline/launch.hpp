#pragma once
// The arguments of a forward or dgrad launch.

#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/alignment.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/source_activation.hpp"
#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::tensor_core {

struct KernelEntry;  // pipeline/kernel_entry.hpp

/// A forward or dgrad, as far as the choice of a kernel and its tiling depend on it.
struct KernelProblem {
  const ConvProblem& problem;
  ConvDirection direction;
  Precision precision;
  Alignment at{};
};

/// A forward or dgrad: out = epilogue(direction(source, weights) + bias), `bias` may be null. On `stream`.
struct Gather {
  const ConvProblem& problem;
  ConvDirection direction;
  Precision precision;
  const void* source;
  const Weights& weights;
  const void* bias;
  void* out;
  Epilogue epilogue;
  int device;
  cudaStream_t stream;
  TapGemm gemm = make_tap_gemm(problem, direction);  ///< the problem in the form of the kernels
  SourceSnake snake{};                               ///< only where the entry's activates_snake() is true
};

}  // namespace polyphase::cuda::tensor_core
