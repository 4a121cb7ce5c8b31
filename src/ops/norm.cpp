#include "ops/norm.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <vector>

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

// Whether a tensor, if there is one, has a number for each of C channels.
void check_size(const char* name, const char* role, const Tensor& tensor, std::int64_t C) {
  require<ShapeError>(!tensor.defined() || tensor.shape() == Shape{C}, name, ": expected ", role, " (C=", C, "), got ",
                      tensor.defined() ? tensor.shape() : Shape{});
}

void check(const char* name, const Tensor& x, const std::array<std::pair<const char*, Tensor>, 4>& per_channel) {
  ops::require_floating(name, x);
  require<ShapeError>(x.rank() >= 2, name, ": expected x (N, C, ...), got ", x.shape());
  for (const auto& [role, tensor] : per_channel) {
    if (!tensor.defined()) continue;
    ops::require_alike(name, std::array{x, tensor});
    check_size(name, role, tensor, x.size(1));
  }
}

// (x - mean)/sqrt(variance + epsilon) over `dims`, as one node:
//   dx = (g - mean(g) - y*mean(g*y)) / sqrt(variance + epsilon)
Tensor normalize(const char* name, const Tensor& x, const std::vector<int>& dims, double epsilon, Moments& moments) {
  Shape kept = x.shape();
  for (const int d : dims) kept[d] = 1;
  Tensor y;
  Tensor scale;
  {
    const NoGradGuard no_grad;
    moments = ops::moments(x, kept, static_cast<double>(kept.numel()) / static_cast<double>(x.numel()));
    scale = rsqrt(add(moments.variance, epsilon));
    const Tensor zero = Tensor::zeros({}, {x.dtype(), x.device()});
    y = ops::map(name, MapOp::scale_around, {moments.centred, moments.rest, scale, zero});
  }
  Saved saved = autograd::save_if(follows_gradients(x), y);
  return autograd::record(name, y, {x}, [saved, scale, dims](const Tensor& g, Needs) {
    const Tensor& normal = saved.get();
    const Tensor along = mean(mul(g, normal), dims, true);
    const Tensor centred = sub(g, mean(g, dims, true));
    return Gradients{mul(sub(centred, mul(normal, along)), scale)};
  });
}

// A per-channel tensor in a shape that broadcasts with x, whose dimension `dim` holds the channels.
Tensor lined_up(const Tensor& values, const Tensor& x, int dim = 1) {
  Shape shape = Shape::filled(x.rank() - dim, 1);
  shape[0] = x.size(dim);
  return values.reshape(shape);
}

Tensor scale_and_shift(Tensor y, const Tensor& weight, const Tensor& bias, int dim = 1) {
  if (weight.defined()) y = mul(y, lined_up(weight, y, dim));
  if (bias.defined()) y = add(y, lined_up(bias, y, dim));
  return y;
}

// For normalisations over dimension `dim`.
void check_channels(const char* name, const Tensor& x, int dim, const Tensor& weight, const Tensor& bias) {
  ops::require_alike(name, std::array{x, weight, bias});
  check_size(name, "weight", weight, x.size(dim));
  check_size(name, "bias", bias, x.size(dim));
}

// x/sqrt(mean(x^2) + epsilon) over the last dimension, as one node: dx = (g - y*mean(g*y)) / sqrt(mean(x^2) + epsilon)
Tensor normalize_square(const Tensor& x, double epsilon) {
  Tensor y;
  Tensor scale;
  {
    const NoGradGuard no_grad;
    Shape kept = x.shape();
    kept[x.rank() - 1] = 1;
    const Tensor squares = ops::reduce(ReduceOp::sum_of_squares, x, kept);
    const double share = 1 / static_cast<double>(x.size(-1));
    scale = rsqrt(ops::map("rms_norm", MapOp::affine, {squares}, {share, epsilon}));
    y = ops::map("rms_norm", MapOp::mul, {x, scale});
  }
  const Saved saved = autograd::save_if(follows_gradients(x), y);
  return autograd::record("rms_norm", y, {x}, [saved, scale](const Tensor& g, Needs) {
    const Tensor& normal = saved.get();
    return Gradients{mul(sub(g, mul(normal, mean(mul(g, normal), {-1}, true))), scale)};
  });
}

// (x - mean)*scale + shift with one of each per channel. Far from zero, x*scale would lose the digits that x - mean keeps.
Tensor scale_around(const Tensor& x, const Tensor& mean, const Tensor& scale, const Tensor& shift) {
  const Tensor m = lined_up(mean.detach(), x), s = lined_up(scale.detach(), x);
  Tensor y = ops::map("batch_norm", MapOp::scale_around, {x, m, s, lined_up(shift.detach(), x)});
  const bool scales = follows_gradients(scale);
  const Saved saved_x = autograd::save_if(scales, x), saved_mean = autograd::save_if(scales, m);
  const auto backward = [s, saved_x, saved_mean](const Tensor& g, Needs needs) {
    const auto per_channel = [&](const Tensor& gradient) { return sum_to(gradient, s.shape()).flatten(); };
    Gradients gradients(4);
    if (needs[0]) gradients[0] = mul(g, s);
    if (needs[1]) gradients[1] = -per_channel(mul(g, s));
    if (needs[2]) gradients[2] = per_channel(mul(g, sub(saved_x.get(), saved_mean.get())));
    if (needs[3]) gradients[3] = per_channel(g);
    return gradients;
  };
  return autograd::record("batch_norm", std::move(y), {x, mean, scale, shift}, backward);
}

// running = (1 - momentum)*running + momentum*value
void update(Tensor running, const Tensor& value, double momentum) {
  const Tensor flat = value.reshape({value.numel()});
  running.copy_(add_scaled(mul(running, 1 - momentum), flat, momentum));
}

Tensor batch_norm_training(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                           const BatchNormOptions& options) {
  if (options.over != nullptr) {
    const ops::SynchronizedBatch batch = ops::normalize_synchronized(x, options.epsilon, *options.over);
    const NoGradGuard no_grad;
    if (running_mean.defined()) update(running_mean, batch.mean, options.momentum);
    if (running_var.defined()) update(running_var, batch.unbiased, options.momentum);
    return batch.normal;
  }
  const std::int64_t count = x.size(1) > 0 ? x.numel() / x.size(1) : 0;
  require<ShapeError>(count > 1, "batch_norm: expected more than one value per channel when training, got x ", x.shape());
  Moments moments;
  const std::vector<int> dims = x.rank() == 3 ? std::vector<int>{0, 2} : std::vector<int>{0};
  Tensor y = normalize("batch_norm", x, dims, options.epsilon, moments);
  const NoGradGuard no_grad;
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  if (running_mean.defined()) update(running_mean, moments.mean, options.momentum);
  if (running_var.defined()) update(running_var, mul(moments.variance, unbiased), options.momentum);
  return y;
}

// The arguments of layer_norm() or rms_norm().
struct ChannelNorm {
  const char* name;
  Tensor x, weight, bias;
  double epsilon;
  int dim;       // of x, holds the channels
  bool centres;  // layer norm
};

// It in the device's kernel; undefined if it has none, and for 16 bits with gradients, which are computed in f32. x is not
// empty:
//   dx = (g - mean(g) - y*mean(g*y))*scale with g = weight*dy, without mean(g) for RMS norm
Tensor normalized_channels(const ChannelNorm& norm) {
  const auto& [name, x, weight, bias, epsilon, dim, centres] = norm;
  const std::int64_t C = x.size(dim);
  std::int64_t N = 1;
  for (int d = 0; d < dim; ++d) N *= x.size(d);
  const bool is_last = dim == x.rank() - 1;
  const Shape shape = is_last ? Shape{N, C} : Shape{N, C, x.numel() / (N * C)};
  const Shape kept = is_last ? Shape{N, 1} : Shape{N, 1, shape[2]};
  const TensorOptions options{x.dtype(), x.device()};
  const auto dense = [](const Tensor& tensor) { return tensor.defined() ? tensor.detach().contiguous() : tensor; };
  const bool followed = autograd::should_record(std::array{x, weight, bias});
  if (followed && ops::is_half(x)) return {};
  const NormInputs in{ops::reshaped_view(dense(x), shape), dense(weight), dense(bias), epsilon, centres};
  NormOutputs out{Tensor::empty(shape, options)};
  if (followed) out.normal = Tensor::empty(shape, options), out.scale = Tensor::empty(kept, options);
  if (!backend_of(x.device()).normalize_channels(out, in)) return {};
  const std::vector<int> others = is_last ? std::vector<int>{0} : std::vector<int>{0, 2};
  return autograd::record(
      name, ops::reshaped_view(out.y, x.shape()), {x, weight, bias},
      [normal = autograd::save_if(followed, out.normal), scale = out.scale, centres = centres, x_shape = x.shape(), shape,
       others, saved_weight = autograd::save_if(followed && weight.defined(), weight)](const Tensor& gradient, Needs needs) {
        const Tensor g = gradient.reshape(shape);
        Gradients gradients(3);
        if (needs[0]) {
          const Tensor gw = saved_weight.defined() ? mul(g, lined_up(saved_weight.get(), g)) : g;
          const Tensor centred = centres ? sub(gw, mean(gw, {1}, true)) : gw;
          const Tensor along = mean(mul(gw, normal.get()), {1}, true);
          gradients[0] = mul(sub(centred, mul(normal.get(), along)), scale).reshape(x_shape);
        }
        if (needs[1]) gradients[1] = sum(mul(g, normal.get()), others);
        if (needs[2]) gradients[2] = sum(g, others);
        return gradients;
      });
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
  Moments moments;
  const Tensor rows = x.reshape({x.size(0), groups, x.numel() / (x.size(0) * groups)});
  return scale_and_shift(normalize("group_norm", rows, {2}, epsilon, moments).reshape(x.shape()), weight, bias);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, int dim) {
  if (autograd::raises(x))
    return layer_norm(autograd::raised(x), autograd::raised(weight), autograd::raised(bias), epsilon, dim);
  ops::require_floating("layer_norm", x);
  require<ShapeError>(x.rank() >= 1, "layer_norm: expected x (..., C), got ", x.shape());
  const int channels = normalize_dim("layer_norm", dim, x.rank());
  check_channels("layer_norm", x, channels, weight, bias);
  if (x.numel() == 0) return scale_and_shift(x, weight, bias, channels);
  if (Tensor y = normalized_channels({"layer_norm", x, weight, bias, epsilon, channels, true}); y.defined()) return y;
  if (ops::is_half(x)) return layer_norm(to_f32(x), to_f32(weight), to_f32(bias), epsilon, channels).to(x.dtype());
  Moments moments;
  return scale_and_shift(normalize("layer_norm", x.contiguous(), {channels}, epsilon, moments), weight, bias, channels);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, std::optional<double> epsilon) {
  if (autograd::raises(x)) return rms_norm(autograd::raised(x), autograd::raised(weight), epsilon);
  ops::require_floating("rms_norm", x);
  require<ShapeError>(x.rank() >= 1, "rms_norm: expected x (..., C), got ", x.shape());
  const int channels = x.rank() - 1;
  check_channels("rms_norm", x, channels, weight, {});
  if (x.numel() == 0) return scale_and_shift(x, weight, {}, channels);
  const double least = x.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double added = epsilon.value_or(least);
  if (Tensor y = normalized_channels({"rms_norm", x, weight, {}, added, channels, false}); y.defined()) return y;
  if (ops::is_half(x)) return rms_norm(to_f32(x), to_f32(weight), epsilon).to(x.dtype());
  return scale_and_shift(normalize_square(x.contiguous(), added), weight, {}, channels);
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
    // Statistics are updated in f32 and rounded back into the caller's tensors.
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
  const Tensor scale = rsqrt(add(running_var, options.epsilon));
  return scale_around(x, running_mean, weight.defined() ? mul(scale, weight) : scale,
                      bias.defined() ? bias : Tensor::zeros_like(running_mean));
}

namespace ops {
namespace {

// The gradients of all weights of a pass, of one device.
class WeightNormBackward final : public autograd::SharedWork {
 public:
  static std::unique_ptr<autograd::SharedWork> make() { return std::make_unique<WeightNormBackward>(); }
  void add(const NormalizedWeightGradient& gradient) { gradients_.push_back(gradient); }
  [[nodiscard]] std::vector<Tensor> tensors() const override {
    std::vector<Tensor> all;
    for (const auto& [dv, dg, dw, v, g, norms] : gradients_) all.insert(all.end(), {dv, dg, dw, v, g, norms});
    return all;
  }
  void run() override { backend_of(gradients_.front().dv.device()).weight_norm_backward(gradients_); }

 private:
  std::vector<NormalizedWeightGradient> gradients_;
};

}  // namespace

std::vector<NormalizedWeight> normalized_weights(std::span<const WeightNormInputs> inputs, std::optional<DType> dtype) {
  std::vector<NormalizedWeight> weights, computed;
  for (const auto& [v, g] : inputs) {
    require_floating("weight_norm", v);
    Shape kept = Shape::filled(v.rank(), 1);
    if (v.rank() > 0) kept[0] = v.size(0);
    require<ShapeError>(g.shape() == kept, "weight_norm: expected g of shape ", kept, ", got ", g.shape());
    const DType of_w = dtype && v.dtype() == DType::f32 ? *dtype : v.dtype();
    weights.push_back({Tensor::empty(v.shape(), {of_w, v.device()}), Tensor::empty(kept, {v.dtype(), v.device()}),
                       v.detach().contiguous(), g.detach().contiguous()});
    if (v.numel() != 0) computed.push_back(weights.back());
  }
  if (!computed.empty()) backend_of(computed.front().v.device()).weight_norm(computed);
  return weights;
}

Tensor recorded_weight(const NormalizedWeight& weight, const WeightNormInputs& inputs) {
  return autograd::record(
      "weight_norm", weight.w.detach(), {inputs.v, inputs.g},
      [saved_v = Saved(inputs.v), saved_g = Saved(inputs.g), saved_norms = Saved(weight.norms)](const Tensor& dw, Needs needs) {
        const Tensor direction = saved_v.get().contiguous(), length = saved_g.get().contiguous();
        const Tensor dv = Tensor::empty_like(direction), dg = Tensor::empty_like(length);
        if (dv.numel() == 0) return Gradients{dv, dg};
        const NormalizedWeightGradient gradient{dv, dg, dw.contiguous(), direction, length, saved_norms.get()};
        if (auto* all = static_cast<WeightNormBackward*>(needs.shared(&WeightNormBackward::make)))
          all->add(gradient);
        else
          backend_of(dv.device()).weight_norm_backward(std::span(&gradient, 1));
        return Gradients{dv, dg};
      });
}

std::vector<SpectralWeight> spectral_weights(std::span<const SpectralNormInputs> inputs, std::optional<DType> dtype) {
  std::vector<SpectralWeight> weights, computed;
  for (const SpectralNormInputs& of : inputs) {
    const auto& [W, left, right, iterates] = of;
    require_floating("spectral_norm", W);
    const DType of_w = dtype && W.dtype() == DType::f32 ? *dtype : W.dtype();
    // New tensors: a later step must not change what the tape holds.
    const auto next = [&of](const Tensor& start) { return of.iterates ? Tensor::empty_like(start) : start; };
    weights.push_back({.w = Tensor::empty(W.shape(), {of_w, W.device()}),
                       .sigma = Tensor::empty({}, {W.dtype(), W.device()}),
                       .left = next(left),
                       .right = next(right),
                       .W = W.detach().contiguous(),
                       .left_start = left,
                       .right_start = right,
                       .iterates = iterates});
    if (W.numel() != 0) computed.push_back(weights.back());
  }
  if (!computed.empty()) backend_of(computed.front().W.device()).spectral_norm(computed);
  for (const SpectralWeight& weight : computed)
    if (weight.iterates)
      for (const Tensor& start : {weight.left_start, weight.right_start}) start.storage().bump_version();
  return weights;
}

Tensor recorded_weight(const SpectralWeight& weight, const Tensor& W) {
  return autograd::record("spectral_norm", weight.w.detach(), {W},
                          [saved_W = Saved(W), sigma = Saved(weight.sigma), left = Saved(weight.left),
                           right = Saved(weight.right)](const Tensor& dw, Needs) {
                            const Tensor matrix = saved_W.get().contiguous(), dW = Tensor::empty_like(matrix);
                            const SpectralWeightGradient gradient{dW,          dw.contiguous(), matrix,
                                                                  sigma.get(), left.get(),      right.get()};
                            if (dW.numel() != 0) backend_of(dW.device()).spectral_norm_backward(std::span(&gradient, 1));
                            return Gradients{dW};
                          });
}

}  // namespace ops

Tensor weight_norm_of(const Tensor& v, const Tensor& g, std::optional<DType> dtype) {
  ops::require_floating("weight_norm", v);
  if (ops::is_half(v)) return weight_norm_of(v.to(DType::f32), g.to(DType::f32), v.dtype());
  const ops::WeightNormInputs inputs{v, g};
  return ops::recorded_weight(ops::normalized_weights(std::span(&inputs, 1), dtype).front(), inputs);
}

}  // namespace polyphase
