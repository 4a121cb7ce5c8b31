#pragma once
// Compares elements of a convolution's result on the GPU with the formula of conv/problem.hpp in float64.

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "conv/problem.hpp"
#include "exact_output.hpp"

namespace polyphase::bench {

/// Device arrays of problem.dtype; `result` is x, w or y, depending on the direction.
struct DeviceOperands {
  void *x, *w, *y;
};

/// Waits. `samples` and `nhwc` as below.
[[nodiscard]] std::vector<SampledOutput> sampled_outputs(const ConvProblem& problem, ConvDirection direction,
                                                         const DeviceOperands& operands, bool nhwc,
                                                         const std::vector<std::int64_t>& samples, cudaStream_t stream);

/// largest_error() of the sampled elements. Waits. `samples` are indices as conv/problem.hpp lays the result out. With `nhwc`
/// the arrays' channels are innermost: x (N, L_in, C_in), w (C_in, K, C_out/G), y (N, L_out, C_out).
[[nodiscard]] double sampled_error(const ConvProblem& problem, ConvDirection direction, const DeviceOperands& operands,
                                   bool nhwc, const std::vector<std::int64_t>& samples, cudaStream_t stream);

}  // namespace polyphase::bench
