#pragma once
// Work on whole lists of gradients or weights on the device (Backend::clip_norm, unscale, average, copy_list,
// update_loss_scale), and the counters of recorded steps.

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "device/backend.hpp"

namespace polyphase::cuda {

/// Two launches: the first sums the squares of pieces; in the second every block adds those in one order and scales its
/// elements.
void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm, cudaStream_t stream);
/// One launch.
void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found, cudaStream_t stream);
/// Two launches, the first of which counts.
void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step, const Tensor& updates,
             cudaStream_t stream);
/// One launch for up to 145 pairs of a dtype.
void copy_list(std::span<const Tensor> out, std::span<const Tensor> in, cudaStream_t stream);
void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step, cudaStream_t stream);

/// counts[i] += 1 for every i of `indices` (ascending), unless `skip` is not 0 (null: none). One launch for up to 16 runs of
/// neighbours.
void advance_counts(std::int64_t* counts, std::span<const std::int64_t> indices, const double* skip, cudaStream_t stream);

}  // namespace polyphase::cuda
