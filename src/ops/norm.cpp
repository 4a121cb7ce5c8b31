#include "ops/norm.hpp"

#include <algorithm>
#include <array>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::Needs;
using autograd::Saved;

namespace {

Tensor to_f32(const Tensor& tensor) { return tensor.defined() ? tensor.to(DType::f32) : tensor; }

void check(const char* name, const Tensor& x, const std::array<std::pair<const char*, Tensor>, 4>& per_channel) {
  ops::require_floating(name, x);
  require<ShapeError>(x.rank() >= 2, name, ": expected x (N, C, ...), got ", x.shape());
  for (const auto& [role, tensor] : per_channel) {
    if (!tensor.defined()) continue;
    ops::require_alike(name, std::array{x, tensor});
    require<ShapeError>(tensor.shape() == Shape{x.size(1)}, name, ": expected ", role, " (C=", x.size(1), "), got ",
                        tensor.shape());
  }
}

struct Statistics {
  Tensor mean;      // x's rank, 1 where reduced
  Tensor variance;  // biased
};

// (x - mean)/sqrt(variance + epsilon) over `dims`, as one node:
//   dx = (g - mean(g) - y*mean(g*y)) / sqrt(variance + epsilon)
Tensor normalize(const char* name, const Tensor& x, const std::vector<int>& dims, double epsilon, Statistics& statistics) {
  Tensor y;
  Tensor scale;
  {
    const NoGradGuard no_grad;
    statistics.mean = mean(x, dims, true);
    y = sub(x, statistics.mean);
    statistics.variance = mean(square(y), dims, true);
    scale = rsqrt(add(statistics.variance, epsilon));
    y = mul(y, scale);
  }
  // `y` comes from mul under no_grad: a handle of its own, not on the tape.
  Saved saved = autograd::save_if(follows_gradients(x), y);
  return autograd::record(name, y, {x}, [saved, scale, dims](const Tensor& g, Needs) {
    const Tensor& normal = saved.get();
    const Tensor along = mean(mul(g, normal), dims, true);
    const Tensor centred = sub(g, mean(g, dims, true));
    return Gradients{mul(sub(centred, mul(normal, along)), scale)};
  });
}

// A per-channel tensor lined up with x (N, C, ...).
Tensor lined_up(const Tensor& values, const Tensor& x) {
  Shape shape = Shape::filled(x.rank() - 1, 1);
  shape[0] = x.size(1);
  return values.reshape(shape);
}

Tensor scale_and_shift(Tensor y, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) y = mul(y, lined_up(weight, y));
  if (bias.defined()) y = add(y, lined_up(bias, y));
  return y;
}

// running = (1 - momentum)*running + momentum*value
void update(Tensor running, const Tensor& value, double momentum) {
  const Tensor flat = value.reshape({value.numel()});
  running.copy_(add_scaled(mul(running, 1 - momentum), flat, momentum));
}

Tensor batch_norm_training(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                           const BatchNormOptions& options) {
  const std::int64_t count = x.size(1) > 0 ? x.numel() / x.size(1) : 0;
  require<ShapeError>(count > 1, "batch_norm: expected more than one value per channel when training, got x ", x.shape());
  Statistics statistics;
  const std::vector<int> dims = x.rank() == 3 ? std::vector<int>{0, 2} : std::vector<int>{0};
  Tensor y = normalize("batch_norm", x, dims, options.epsilon, statistics);
  const NoGradGuard no_grad;
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  if (running_mean.defined()) update(running_mean, statistics.mean, options.momentum);
  if (running_var.defined()) update(running_var, mul(statistics.variance, unbiased), options.momentum);
  return y;
}

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias, double epsilon) {
  if (autograd::raises(x))
    return group_norm(autograd::raised(x), groups, autograd::raised(weight), autograd::raised(bias), epsilon);
  check("group_norm", x, {{{"weight", weight}, {"bias", bias}, {}, {}}});
  require<ShapeError>(groups >= 1, "group_norm: expected groups >= 1, got ", groups);
  require<ShapeError>(x.size(1) % groups == 0, "group_norm: expected groups to divide C=", x.size(1), ", got ", groups);
  if (ops::is_half(x)) return group_norm(to_f32(x), groups, to_f32(weight), to_f32(bias), epsilon).to(x.dtype());
  if (x.numel() == 0) return scale_and_shift(x, weight, bias);
  Statistics statistics;
  const Tensor rows = x.reshape({x.size(0), groups, x.numel() / (x.size(0) * groups)});
  return scale_and_shift(normalize("group_norm", rows, {2}, epsilon, statistics).reshape(x.shape()), weight, bias);
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, const BatchNormOptions& options) {
  const std::array parameters{running_mean, running_var, weight, bias};
  const auto half = [](const Tensor& tensor) { return tensor.defined() && ops::is_half(tensor); };
  if (autograd::raises(x) && std::none_of(parameters.begin(), parameters.end(), half))
    return batch_norm(autograd::raised(x), running_mean, running_var, weight, bias, options);
  check("batch_norm", x, {{{"running_mean", running_mean}, {"running_var", running_var}, {"weight", weight}, {"bias", bias}}});
  require<ShapeError>(x.rank() <= 3, "batch_norm: expected x (N, C) or (N, C, L), got ", x.shape());
  if (ops::is_half(x)) {
    // Statistics are kept up in f32 and rounded back into the caller's tensors.
    Tensor mean32 = to_f32(running_mean);
    Tensor var32 = to_f32(running_var);
    const Tensor y = batch_norm(to_f32(x), mean32, var32, to_f32(weight), to_f32(bias), options).to(x.dtype());
    if (options.training && running_mean.defined()) Tensor(running_mean).copy_(mean32);
    if (options.training && running_var.defined()) Tensor(running_var).copy_(var32);
    return y;
  }
  if (options.training) return scale_and_shift(batch_norm_training(x, running_mean, running_var, options), weight, bias);

  require<ShapeError>(running_mean.defined() && running_var.defined(),
                      "batch_norm: expected running_mean and running_var outside training, got none");
  // Folded into one multiply-add per element.
  Tensor scale = rsqrt(add(running_var, options.epsilon));
  if (weight.defined()) scale = mul(scale, weight);
  const Tensor shift = bias.defined() ? sub(bias, mul(running_mean, scale)) : -mul(running_mean, scale);
  return scale_and_shift(x, scale, shift);
}

}  // namespace polyphase
