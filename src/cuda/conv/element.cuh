#pragma once
// Maps a problem's dtype to the element type of its kernels.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "conv/problem.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {

/// Calls `run(pointer)` with a null pointer to the element type of `problem`. Throws DTypeError naming `direction` for i64.
template <class Run>
void with_element(const ConvProblem& problem, ConvDirection direction, const Run& run) {
  switch (problem.dtype) {
    case DType::f32:
      return run(static_cast<float*>(nullptr));
    case DType::f64:
      return run(static_cast<double*>(nullptr));
    case DType::f16:
      return run(static_cast<__half*>(nullptr));
    case DType::bf16:
      return run(static_cast<__nv_bfloat16*>(nullptr));
    case DType::i64:
      break;
  }
  throw DTypeError(concat("conv ", direction, ": expected f32, f64, f16 or bf16, got ", problem.dtype));
}

}  // namespace polyphase::cuda
