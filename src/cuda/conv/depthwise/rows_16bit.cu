// The input gradient that sums many rows into one: f16 and bf16.
#include "cuda/conv/depthwise/rows.cuh"

namespace polyphase::cuda::depthwise {

void rows_dgrad_16bit(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                      const SourceSnake& snake, const Epilogue& epilogue, cudaStream_t stream) {
  if (problem.dtype == DType::f16) return rows_dgrad_as<__half>(problem, y, w, bias, x, snake, epilogue, stream);
  rows_dgrad_as<__nv_bfloat16>(problem, y, w, bias, x, snake, epilogue, stream);
}

}  // namespace polyphase::cuda::depthwise
