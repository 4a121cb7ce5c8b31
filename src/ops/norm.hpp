#pragma once
// Normalisations. All differentiable.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// x (N, C, ...); each of `groups` groups of channels of each sample to mean 0, variance 1, then weight (C) and bias (C),
/// either may be undefined. Biased variance, as in PyTorch.
[[nodiscard]] Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                                double epsilon = 1e-5);

struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1;
  double epsilon = 1e-5;
};
/// x (N, C) or (N, C, L); statistics over N and L when training (running ones updated in place, if defined, with the unbiased
/// variance), the running ones otherwise. Throws ShapeError when training on a single value per channel.
[[nodiscard]] Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                                const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {});

}  // namespace polyphase
