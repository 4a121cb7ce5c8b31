#pragma once
// Snake of a source of f32, for the kernel that computes sums again (recompute/wide.hpp): only where there are such sums.

#include <cstdint>

#include "cuda/conv/source_activation.hpp"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/recompute/wide_blocks.cuh"
#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/dependent_launch.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kCopyThreads = 256;

/// to (rows, length) = Snake of the source; row r is of channel r % channels. Does nothing if the product has left no sums.
static __global__ void __launch_bounds__(kCopyThreads)
    activated_copy_kernel(std::int64_t rows, std::int64_t channels, std::int64_t length, const float* __restrict__ source,
                          const SourceSnake snake, const OperandHeader* header, const WideBlocks::Words* words,
                          float* __restrict__ to) {
  constexpr int kEach = 4;
  wait_for_grid_before();
  const SampleLook<true> look(header);
  if (ptx::load_relaxed(&words->any) == 0 && !look.is_mixed()) return;
#pragma unroll 1
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t channel = row % channels;
    const SnakeFunction<float, false> function(static_cast<const float*>(snake.alpha)[channel],
                                               static_cast<const float*>(snake.beta)[channel]);
    const float* const from = source + row * length;
    float* const out = to + row * length;
#pragma unroll 1
    for (std::int64_t first = threadIdx.x; first < length; first += kEach * kCopyThreads) {
      float values[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) values[i] = first + i * kCopyThreads < length ? from[first + i * kCopyThreads] : 0.0F;
      function.apply(values);
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (first + i * kCopyThreads < length) out[first + i * kCopyThreads] = values[i];
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
