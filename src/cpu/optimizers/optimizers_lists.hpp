#pragma once
// Work on a whole list of gradients or weights: clipping, unscaling, averaging; and the loss scale's rule.

#include <span>

#include "device/backend.hpp"

namespace polyphase::cpu {

/// As in Backend. The norm has the same bits for every number of threads.
void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm);
void copy_list(std::span<const Tensor> out, std::span<const Tensor> in);
void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found);
void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step, const Tensor& updates);
void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step);

}  // namespace polyphase::cpu
