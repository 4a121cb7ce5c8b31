#pragma once
// What a launch of forward or dgrad is made from.

#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/weights.hpp"

namespace polyphase::cuda::tensor_core {

/// The problem as its kernels want it.
struct Gather {
  const ConvProblem& problem;
  ConvDirection direction;
  TapGemm form;
  const void* source;
  const Weights& weights;
  const void* bias;
  void* out;
  Epilogue epilogue;
  int device;
  cudaStream_t stream;
};

}  // namespace polyphase::cuda::tensor_core
