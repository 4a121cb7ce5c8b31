#pragma once
// Forward and dgrad of stride 1 with few columns and short reductions. Host side; the kernel is in tensor_core_boxes.cuh.

#include <cuda_runtime.h>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/weights.hpp"

namespace polyphase::cuda::tensor_core {

/// forward or dgrad of a problem that it takes: out = source convolved with w, plus bias unless null, through an
/// epilogue that is light and not late. On `stream`.
void boxes_gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights,
                  const void* bias, void* out, const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream);

}  // namespace polyphase::cuda::tensor_core
