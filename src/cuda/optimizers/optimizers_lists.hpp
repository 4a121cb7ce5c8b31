#pragma once
// Work over whole lists of gradients or weights on the device (Backend::clip_norm, unscale, average, update_loss_scale), and
// the counters that recorded steps count with.

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// Two launches: the sums of squares of pieces, then every block adds those up, in one order, and scales its elements.
void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm, cudaStream_t stream);
/// One launch.
void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found, cudaStream_t stream);
/// Two launches, one of which counts.
void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step, const Tensor& updates,
             cudaStream_t stream);
void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step, cudaStream_t stream);

/// counts[i] += 1 for every i of `indices`, which ascend, unless `skip` (null: none) is not 0. One launch for up to 16 runs of
/// neighbours.
void advance_counts(std::int64_t* counts, std::span<const std::int64_t> indices, const double* skip, cudaStream_t stream);

}  // namespace polyphase::cuda
