// The input gradient that sums many rows into one: f32, and the dispatch on the dtype.
#include "cuda/conv/depthwise/rows.cuh"

namespace polyphase::cuda::depthwise {

void rows_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x, const SourceSnake& snake,
                const Epilogue& epilogue, cudaStream_t stream) {
  if (problem.dtype == DType::f32) return rows_dgrad_as<float>(problem, y, w, bias, x, snake, epilogue, stream);
  rows_dgrad_16bit(problem, y, w, bias, x, snake, epilogue, stream);
}

}  // namespace polyphase::cuda::depthwise
