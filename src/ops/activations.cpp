#include "ops/activations.hpp"

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {

using autograd::Derivative;
using autograd::follows_gradients;
using autograd::Gradients;
using autograd::Needs;
using autograd::record;
using autograd::save_if;
using autograd::Saved;
using ops::map;

namespace {

enum class Keep : std::uint8_t { input, output };

// `gradient` is the fused derivative, computed from x or y as `keep` says; `offered` is the derivative of an activation that a
// convolution's gradient can apply.
Tensor activation(const char* name, MapOp op, MapOp gradient, Keep keep, const Tensor& x, double p = 0,
                  Activation offered = Activation::none) {
  ops::require_floating(name, x);
  Tensor y = map(name, op, {x}, {p, 0});
  Saved saved = save_if(follows_gradients(x), keep == Keep::input ? x : y);
  Derivative derivative{offered, p, saved, true};
  return record(
      name, std::move(y), {x},
      [saved = std::move(saved), name, gradient, p](const Tensor& g, Needs needs) {
        return Gradients{needs.is_differentiated() ? g : map(name, gradient, {saved.get(), g}, {p, 0})};
      },
      std::move(derivative));
}

// alpha (C) as (C, 1), which broadcasts with x (N, C, L) and (C, L).
Tensor per_channel(const char* name, const char* parameter, const Tensor& x, const Tensor& values) {
  require<ShapeError>(x.rank() == 2 || x.rank() == 3, name, ": expected x (N, C, L) or (C, L), got ", x.shape());
  require<ShapeError>(values.rank() == 1 && values.size(0) == x.size(-2), name, ": expected ", parameter, " (C=", x.size(-2),
                      "), got ", values.shape());
  return values.unsqueeze(1);
}

// The sum that x's gradient will be added to next, so that it is computed in the same pass; undefined if there is none.
Tensor taken_sum(const Needs& needs, const Tensor& x) {
  if (!needs[0]) return {};
  const autograd::Onward onward = needs.onward();
  if (onward.derivative != nullptr || !onward.sum.defined() || onward.sum.dtype() != x.dtype()) return {};
  needs.take(onward);
  return onward.sum;
}

// alpha and beta are (C, 1) here; for Snake they are one tensor, and the tape adds their gradients.
Tensor snake_of(const char* name, const Tensor& x, const Tensor& alpha, const Tensor& beta) {
  if (autograd::promotes(x, alpha))
    return snake_of(name, autograd::promoted(x, alpha), autograd::promoted(alpha, x), autograd::promoted(beta, x));
  ops::require_floating(name, x);
  Tensor y = map(name, MapOp::snake, {x, alpha, beta});
  const bool followed = follows_gradients(x) || follows_gradients(alpha) || follows_gradients(beta);
  return record(
      name, std::move(y), {x, alpha, beta},
      [sx = save_if(followed, x), sa = save_if(followed, alpha), sb = save_if(followed, beta)](const Tensor& g, Needs needs) {
        const Tensor added = taken_sum(needs, sx.get());
        const SnakeGradients got =
            ops::snake_backward(sx.get(), sa.get().squeeze(1), sb.get().squeeze(1), g, {needs[0], needs[1], needs[2]}, added);
        Gradients gradients{got.x, {}, {}};
        if (needs[1]) gradients[1] = got.alpha.unsqueeze(1);
        if (needs[2]) gradients[2] = got.beta.unsqueeze(1);
        return gradients;
      });
}

}  // namespace

Tensor relu(const Tensor& x) { return activation("relu", MapOp::relu, MapOp::relu_grad, Keep::output, x, 0, Activation::relu); }

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return activation("leaky_relu", MapOp::leaky_relu, MapOp::leaky_relu_grad, Keep::input, x, negative_slope,
                    Activation::leaky_relu);
}

Tensor elu(const Tensor& x, double alpha) { return activation("elu", MapOp::elu, MapOp::elu_grad, Keep::input, x, alpha); }

Tensor gelu(const Tensor& x, bool approximate_tanh) {
  if (approximate_tanh) return activation("gelu", MapOp::gelu_tanh, MapOp::gelu_tanh_grad, Keep::input, x);
  return activation("gelu", MapOp::gelu, MapOp::gelu_grad, Keep::input, x);
}

Tensor silu(const Tensor& x) { return activation("silu", MapOp::silu, MapOp::silu_grad, Keep::input, x); }

Tensor tanh(const Tensor& x) { return activation("tanh", MapOp::tanh, MapOp::tanh_grad, Keep::output, x, 0, Activation::tanh); }

Tensor sigmoid(const Tensor& x) { return activation("sigmoid", MapOp::sigmoid, MapOp::sigmoid_grad, Keep::output, x); }

Tensor softplus(const Tensor& x) {
  return activation("softplus", MapOp::softplus, MapOp::softplus_grad, Keep::input, autograd::raised(x));
}

Tensor glu(const Tensor& x, int dim) {
  ops::require_floating("glu", x);
  const int d = normalize_dim("glu", dim, x.rank());
  require<ShapeError>(x.size(d) % 2 == 0, "glu: expected an even size of dimension ", d, ", got ", x.shape());
  const std::int64_t half = x.size(d) / 2;
  return mul(x.narrow(d, 0, half), sigmoid(x.narrow(d, half, half)));
}

Tensor snake(const Tensor& x, const Tensor& alpha) {
  const Tensor a = per_channel("snake", "alpha", x, alpha);
  return snake_of("snake", x, a, a);
}

Tensor snake_beta(const Tensor& x, const Tensor& alpha, const Tensor& beta) {
  return snake_of("snake_beta", x, per_channel("snake_beta", "alpha", x, alpha), per_channel("snake_beta", "beta", x, beta));
}

Tensor dropout(const Tensor& x, double p, bool training) {
  require<ShapeError>(p >= 0 && p < 1, "dropout: expected p in [0, 1), got ", p);
  ops::require_floating("dropout", x);
  if (!training || p == 0) return x;
  // Generated in f32 for every dtype, so that a network drops the same elements in every precision.
  const TensorOptions options{DType::f32, x.device()};
  const Tensor keep = greater_equal(Tensor::rand(x.shape(), options), Tensor::full({}, p, options));
  const Tensor mask = mul(keep, 1 / (1 - p)).to(x.dtype());
  return mul(x, mask);
}

Tensor average_of(std::span<const Tensor> parts, double divisor, Activation activation, double slope) {
  constexpr const char* name = "average_of";
  require<Error>(!parts.empty(), name, ": expected at least one tensor, got none");
  const bool active = activation != Activation::none, leaky = activation == Activation::leaky_relu;
  require<Error>(!active || activation == Activation::relu || (leaky && slope >= 0), name,
                 ": expected no activation, relu, or leaky_relu with a slope of at least 0");
  for (const Tensor& part : parts) {
    ops::require_floating(name, part);
    require<ShapeError>(part.shape() == parts[0].shape(), name, ": expected tensors of one shape, got ", parts[0].shape(),
                        " and ", part.shape());
  }
  ops::require_alike(name, parts);
  std::vector<Tensor> dense;
  for (const Tensor& part : parts) dense.push_back(part.detach().contiguous());
  Tensor y = Tensor::empty(parts[0].shape(), {parts[0].dtype(), parts[0].device()});
  if (y.numel() != 0) backend_of(y.device()).average_of(y, dense, divisor, activation, slope);
  Derivative derivative;
  if (active) derivative = {activation, slope, save_if(autograd::should_record(parts), y)};
  const Saved result = derivative.result;
  return record(
      name, std::move(y), parts,
      [activation, slope, divisor, active, result, count = parts.size()](const Tensor& grad, Needs needs) {
        Tensor g = grad;
        if (active && !needs.is_differentiated()) g = map(name, derivative_of(activation), {result.get(), g}, {slope, 0});
        if (divisor != 1) g = div(g, Tensor::full({}, divisor, {g.dtype(), g.device()}));
        return Gradients(count, g);
      },
      std::move(derivative));
}

}  // namespace polyphase
