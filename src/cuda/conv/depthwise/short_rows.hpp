#pragma once
// Short rows of y, many for each row of x (Conv1d from many channels to one: a discriminator's last layer).

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"

namespace polyphase::cuda::depthwise {

/// Whether the kernels below compute the problem: f32, f16 or bf16, one channel of x a group, S = D = 1, K <= 17, from 8
/// (dgrad: 64) to 2^19 rows of y for each row of x, of at most 256 positions. Other kernels give a row to a thread block or a
/// warp, which has little to do.
[[nodiscard]] inline bool has_short_rows(const ConvProblem& p, ConvDirection direction) {
  constexpr std::int64_t kMostRows = 1 << 19, kMostTaps = 17, kLongest = 256;
  const std::int64_t rows = p.channels_out_per_group(), least = direction == ConvDirection::dgrad ? 64 : 8;
  return p.dtype != DType::f64 && p.G == p.C_in && p.S == 1 && p.D == 1 && p.K <= kMostTaps && rows >= least &&
         rows <= kMostRows && std::max(p.L_in, p.L_out) <= kLongest && p.N * p.C_in <= INT32_MAX && p.C_in <= 65535;
}

/// y = forward(x, w) + bias, and the epilogue.
void short_rows_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y,
                        const Epilogue& epilogue, cudaStream_t stream);

/// x = dgrad(y, w) + bias, and the epilogue.
void short_rows_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                      const Epilogue& epilogue, cudaStream_t stream);

/// Slices of the samples in short_rows_wgrad().
[[nodiscard]] std::int64_t short_rows_slices(const ConvProblem& problem, int sm_count);
/// partial (slices, C_out, K) = the sums of each slice of the weight gradient.
void short_rows_wgrad(const ConvProblem& problem, const void* x, const void* y, std::int64_t slices, float* partial,
                      cudaStream_t stream);

}  // namespace polyphase::cuda::depthwise
