#pragma once
// Normalisations. All differentiable.

#include <optional>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// x (N, C, ...): normalises each of `groups` groups of channels of each sample to mean 0 and variance 1, then applies weight
/// (C) and bias (C); either may be undefined. Biased variance, as in PyTorch.
[[nodiscard]] Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                                double epsilon = 1e-5);

/// Normalises dimension `dim` of x, which holds C channels, to mean 0 and variance 1, then applies weight (C) and bias (C);
/// either may be undefined. Biased variance, as in PyTorch: y = (x - mean)/sqrt(variance + epsilon)*weight + bias (Ba, Kiros
/// and Hinton 2016). The default is the last dimension; 1 is for x (N, C, L).
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double epsilon = 1e-5,
                                int dim = -1);
/// Normalises the last dimension of x (..., C) to a mean square of 1, then applies weight (C), which may be undefined: y =
/// x/sqrt(mean(x^2) + epsilon)*weight (Zhang and Sennrich 2019). The default epsilon is the distance from 1 to the next number
/// of x's dtype, f32's for f16 and bf16.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, std::optional<double> epsilon = std::nullopt);

/// Sums statistics over the processes that train one network together (distributed/sync_batch_norm.hpp).
class StatisticsSum {
 public:
  StatisticsSum() = default;
  StatisticsSum(const StatisticsSum&) = delete;
  StatisticsSum& operator=(const StatisticsSum&) = delete;
  virtual ~StatisticsSum() = default;
  /// In place; all processes call it in the same order with `values` (n) f64, contiguous.
  virtual void sum(const Tensor& values) = 0;
};

struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1;
  double epsilon = 1e-5;
  /// In training the statistics are those of all processes' batches, whose gradients they share. Null: of x only. Must outlive
  /// the backward pass.
  StatisticsSum* over = nullptr;
};
/// x (N, C) or (N, C, L). In training it uses the statistics over N and L, and updates the running ones in place, if defined,
/// with the unbiased variance; otherwise it uses the running ones. Throws ShapeError in training with a single value per
/// channel.
[[nodiscard]] Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                                const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {});

namespace ops {

/// Not for users: the results of normalize_synchronized().
struct SynchronizedBatch {
  Tensor normal;    ///< x's shape: (x - mean)/sqrt(variance + epsilon), on the tape
  Tensor mean;      ///< (C), of all processes' batches
  Tensor unbiased;  ///< (C), their variance times count/(count - 1)
};
/// Not for users: batch_norm() over the batches of several processes. x (N, C) or (N, C, L), f32 or f64. The statistics are
/// summed in f64: first the means, then the squares around the common mean. The gradient is that of the common statistics too.
/// Throws ShapeError for an empty batch.
[[nodiscard]] SynchronizedBatch normalize_synchronized(const Tensor& x, double epsilon, StatisticsSum& over);

}  // namespace ops

/// g * v/||v||, the norm taken over all dimensions but the first: v (n, ...), g (n, 1, ...) -> (n, ...), on the device's
/// current stream. Differentiable in both. f16 and bf16 are computed in f32. The result has v's dtype; with `dtype` f16 or bf16
/// an f32 result is rounded to it, as to() would, in the same pass. A row of zeros gives NaN, as in PyTorch. Throws ShapeError
/// if g has another shape.
[[nodiscard]] Tensor weight_norm_of(const Tensor& v, const Tensor& g, std::optional<DType> dtype = std::nullopt);

}  // namespace polyphase
