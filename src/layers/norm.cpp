#include "layers/norm.hpp"

#include <cmath>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"
#include "ops/norm.hpp"

namespace polyphase {

using Layout = ModuleStream::Layout;

namespace {

void require_epsilon(const char* layer, double epsilon) {
  require<ShapeError>(std::isfinite(epsilon) && epsilon >= 0, layer, ": expected epsilon >= 0, got ", epsilon);
}

std::unique_ptr<ModuleStream> pointwise_stream(Module& module, Layout layout, bool only_in_eval = false) {
  return std::make_unique<layers::PointwiseStream>(
      module, layers::PointwiseStream::Options{.layout = layout, .only_in_eval = only_in_eval});
}

// The plain average of `count` batches; `batch` is the last one. Does not wait for the count on any device.
Tensor including(const Tensor& average, const Tensor& batch, const Tensor& count) {
  const DType dtype = average.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor before = average.to(dtype);
  return before + (batch.to(dtype) - before) / count.to(average.device()).to(dtype);
}

}  // namespace

GroupNorm::GroupNorm(const Options& options) : options_(options) {
  layers::require_at_least("GroupNorm", "num_groups", options.num_groups, 1);
  layers::require_at_least("GroupNorm", "num_channels", options.num_channels, 1);
  layers::require_divisible("GroupNorm", "num_channels", options.num_channels, "num_groups", options.num_groups);
  require_epsilon("GroupNorm", options.epsilon);
  layers::require_floating("GroupNorm", options.dtype);
  if (!options.affine) return;
  const TensorOptions learned{.dtype = options.dtype, .device = options.device, .requires_grad = true};
  weight_ = Tensor::ones({options.num_channels}, learned);
  bias_ = Tensor::zeros({options.num_channels}, learned);
}

void GroupNorm::visit(Visitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
}

Tensor GroupNorm::forward(const Tensor& x) {
  require<ShapeError>(x.rank() >= 2 && x.size(1) == options_.num_channels,
                      "GroupNorm: expected x (N, C=", options_.num_channels, ", ...), got ", x.shape());
  return group_norm(x, options_.num_groups, weight_, bias_, options_.epsilon);
}

LayerNorm::LayerNorm(const Options& options) : options_(options) {
  layers::require_at_least("LayerNorm", "normalized_shape", options.normalized_shape, 1);
  require_epsilon("LayerNorm", options.epsilon);
  layers::require_floating("LayerNorm", options.dtype);
  if (!options.elementwise_affine) return;
  const TensorOptions learned{.dtype = options.dtype, .device = options.device, .requires_grad = true};
  weight_ = Tensor::ones({options.normalized_shape}, learned);
  if (options.bias) bias_ = Tensor::zeros({options.normalized_shape}, learned);
}

void LayerNorm::visit(Visitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
}

Tensor LayerNorm::forward(const Tensor& x) {
  require<ShapeError>(x.rank() >= 1 && x.size(-1) == options_.normalized_shape,
                      "LayerNorm: expected x (..., C=", options_.normalized_shape, "), got ", x.shape());
  return layer_norm(x, weight_, bias_, options_.epsilon);
}

Tensor LayerNorm::forward_channels_first(const Tensor& x) {
  require<ShapeError>(x.rank() == 3 && x.size(1) == options_.normalized_shape,
                      "LayerNorm: expected x (N, C=", options_.normalized_shape, ", L), got ", x.shape());
  return layer_norm(x, weight_, bias_, options_.epsilon, 1);
}

std::unique_ptr<ModuleStream> LayerNorm::make_stream() { return pointwise_stream(*this, Layout::channels_last); }

RMSNorm::RMSNorm(const Options& options) : options_(options) {
  layers::require_at_least("RMSNorm", "normalized_shape", options.normalized_shape, 1);
  require_epsilon("RMSNorm", options.epsilon.value_or(0));
  layers::require_floating("RMSNorm", options.dtype);
  if (options.elementwise_affine)
    weight_ =
        Tensor::ones({options.normalized_shape}, {.dtype = options.dtype, .device = options.device, .requires_grad = true});
}

void RMSNorm::visit(Visitor& visitor) { visitor.parameter("weight", weight_); }

Tensor RMSNorm::forward(const Tensor& x) {
  require<ShapeError>(x.rank() >= 1 && x.size(-1) == options_.normalized_shape,
                      "RMSNorm: expected x (..., C=", options_.normalized_shape, "), got ", x.shape());
  return rms_norm(x, weight_, options_.epsilon);
}

std::unique_ptr<ModuleStream> RMSNorm::make_stream() { return pointwise_stream(*this, Layout::channels_last); }

LayerScale::LayerScale(const Options& options) : options_(options) {
  layers::require_at_least("LayerScale", "channels", options.channels, 1);
  layers::require_floating("LayerScale", options.dtype);
  gamma_ =
      Tensor::full({options.channels}, options.init, {.dtype = options.dtype, .device = options.device, .requires_grad = true});
}

void LayerScale::visit(Visitor& visitor) { visitor.parameter(options_.name, gamma_); }

Tensor LayerScale::forward(const Tensor& x) { return mul(x, gamma_for(x, options_.dim)); }

Tensor LayerScale::forward_channels_first(const Tensor& x) {
  const int dim = normalize_dim("LayerScale", options_.dim, 3);
  return mul(x, gamma_for(x, dim == 0 ? 0 : 3 - dim));
}

Tensor LayerScale::gamma_for(const Tensor& x, int dim) const {
  const int channels = normalize_dim("LayerScale", dim, x.rank());
  require<ShapeError>(x.size(channels) == options_.channels, "LayerScale: expected C=", options_.channels, " in dimension ",
                      channels, ", got ", x.shape());
  Shape shape = Shape::filled(x.rank() - channels, 1);
  shape[0] = options_.channels;
  return gamma_.reshape(shape);
}

std::unique_ptr<ModuleStream> LayerScale::make_stream() {
  const auto layout = layers::layout_of_channels(options_.dim);
  return layout ? pointwise_stream(*this, *layout) : Module::make_stream();
}

BatchNorm1d::BatchNorm1d(const Options& options) : options_(options) {
  layers::require_at_least("BatchNorm1d", "num_features", options.num_features, 1);
  require_epsilon("BatchNorm1d", options.epsilon);
  layers::require_floating("BatchNorm1d", options.dtype);
  require<ShapeError>(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1),
                      "BatchNorm1d: expected momentum in [0, 1], got ", options.momentum.value_or(0));
  const Shape shape{options.num_features};
  const TensorOptions state{.dtype = options.dtype, .device = options.device};
  const TensorOptions learned{.dtype = options.dtype, .device = options.device, .requires_grad = true};
  if (options.affine) {
    weight_ = Tensor::ones(shape, learned);
    bias_ = Tensor::zeros(shape, learned);
  }
  if (options.track_running_stats) {
    running_mean_ = Tensor::zeros(shape, state);
    running_var_ = Tensor::ones(shape, state);
    num_batches_tracked_ = Tensor::zeros({}, {.dtype = DType::i64, .device = options.device});
  }
}

void BatchNorm1d::visit(Visitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.parameter("bias", bias_);
  visitor.buffer("running_mean", running_mean_);
  visitor.buffer("running_var", running_var_);
  visitor.buffer("num_batches_tracked", num_batches_tracked_);
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  require<ShapeError>((x.rank() == 2 || x.rank() == 3) && x.size(1) == options_.num_features,
                      "BatchNorm1d: expected x (N, C=", options_.num_features, ") or (N, C=", options_.num_features,
                      ", L), got ", x.shape());
  const bool tracks = num_batches_tracked_.defined();
  const bool updates = tracks && is_training();
  const BatchNormOptions options{.training = is_training() || !tracks,
                                 .momentum = options_.momentum.value_or(1),
                                 .epsilon = options_.epsilon,
                                 .over = over_.get()};
  const bool averages = updates && !options_.momentum;
  const Tensor mean = averages ? Tensor::zeros_like(running_mean_) : running_mean_;
  const Tensor var = averages ? Tensor::zeros_like(running_var_) : running_var_;
  Tensor y = batch_norm(x, mean, var, weight_, bias_, options);
  if (!updates) return y;
  const NoGradGuard no_grad;
  if (averages) {
    const Tensor batches = num_batches_tracked_ + 1.0;
    const Tensor new_mean = including(running_mean_, mean, batches), new_var = including(running_var_, var, batches);
    running_mean_.copy_(new_mean);
    running_var_.copy_(new_var);
  }
  const auto count = [batches = num_batches_tracked_] {
    const NoGradGuard off_the_tape;
    Tensor(batches).copy_(batches + 1.0);
  };
  count();
  if (num_batches_tracked_.device().is_cpu()) cuda::on_replay(count);
  return y;
}

std::unique_ptr<ModuleStream> BatchNorm1d::make_stream() {
  return options_.track_running_stats ? pointwise_stream(*this, Layout::channels_first, true) : Module::make_stream();
}

}  // namespace polyphase
