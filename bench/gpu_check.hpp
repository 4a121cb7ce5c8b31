#pragma once
// Elements of a convolution's result on the GPU against the formula of conv/problem.hpp in float64.

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "conv/problem.hpp"
#include "exact_output.hpp"

namespace polyphase::bench {

/// Device arrays of problem.dtype; `result` is x, w or y itself, as the direction has it.
struct DeviceOperands {
  void *x, *w, *y;
};

/// Waits. `samples` and `nhwc` as below.
[[nodiscard]] std::vector<SampledOutput> sampled_outputs(const ConvProblem& problem, ConvDirection direction,
                                                         const DeviceOperands& operands, bool nhwc,
                                                         const std::vector<std::int64_t>& samples, cudaStream_t stream);

/// The worst |result - formula| of the sampled elements over the root mean square of the formula; infinity for NaN. Waits.
/// `samples` are indices as conv/problem.hpp lays the result out; with `nhwc` the arrays have the channels innermost:
/// x (N, L_in, C_in), w (C_in, K, C_out/G), y (N, L_out, C_out).
[[nodiscard]] double sampled_error(const ConvProblem& problem, ConvDirection direction, const DeviceOperands& operands,
                                   bool nhwc, const std::vector<std::int64_t>& samples, cudaStream_t stream);

}  // namespace polyphase::bench
