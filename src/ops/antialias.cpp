#include "ops/antialias.hpp"

#include <array>
#include <cmath>
#include <numbers>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/activations.hpp"
#include "ops/constants.hpp"
#include "ops/conv.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::Needs;
using autograd::save_if;
using autograd::Saved;

namespace {

// The modified Bessel function of order 0 by its power series, whose terms are all positive.
double bessel_i0(double x) {
  double term = 1, total = 1;
  for (double k = 1; term > total * 1e-17; ++k) total += term *= (x / (2 * k)) * (x / (2 * k));
  return total;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }

double kaiser_beta(double attenuation) {
  if (attenuation > 50) return 0.1102 * (attenuation - 8.7);
  if (attenuation < 21) return 0;
  return 0.5842 * std::pow(attenuation - 21, 0.4) + 0.07886 * (attenuation - 21);
}

void check(const char* name, const Tensor& x, const Tensor& filter) {
  ops::require_floating(name, x);
  ops::require_defined(name, "the filter", filter);
  const bool is_row = filter.rank() == 1 || (filter.rank() == 3 && filter.size(0) == 1 && filter.size(1) == 1);
  require<ShapeError>(is_row && filter.size(-1) >= 2 && filter.size(-1) % 2 == 0, name,
                      ": expected filter (K) or (1, 1, K) with K even, got ", filter.shape());
  require<ShapeError>(x.rank() >= 1 && x.size(-1) >= 1, name, ": expected x (..., L >= 1), got ", x.shape());
}

// All rows as the batch of one channel, and the reverse.
Tensor rows_of(const Tensor& x) {
  Shape shape = x.shape();
  const std::int64_t length = shape[x.rank() - 1];
  shape[x.rank() - 1] = 1;
  return x.reshape({shape.numel(), 1, length});
}
Tensor shaped_like(const Tensor& rows, Shape shape) {
  shape[shape.rank() - 1] = rows.size(-1);
  return rows.reshape(shape);
}

// Checks the arguments of antialias_snake(): one dtype unless a guard casts.
void check_snake(const char* name, const AntialiasedSnake& in) {
  for (const Tensor& filter : {in.up, in.down}) check(name, in.x, filter);
  for (const auto& [role, values] : {std::pair{"alpha", in.alpha}, std::pair{"beta", in.beta}}) {
    ops::require_floating(name, values);
    require<ShapeError>(in.x.rank() == 2 || in.x.rank() == 3, name, ": expected x (N, C, L) or (C, L), got ", in.x.shape());
    require<ShapeError>(values.shape() == Shape{in.x.size(-2)}, name, ": expected ", role, " (C=", in.x.size(-2), "), got ",
                        values.shape());
  }
  const std::array all{in.x, in.alpha, in.beta, in.up, in.down};
  if (!autocast_dtype()) return ops::require_alike(name, all);
  for (const Tensor& tensor : all)
    require<DeviceError>(tensor.device() == in.x.device(), name, ": expected tensors on one device, got ", in.x.device(),
                         " and ", tensor.device());
}

// In the form that a backend takes.
AntialiasedSnake dense(const AntialiasedSnake& in) {
  const auto row = [](const Tensor& tensor) { return ops::reshaped_view(tensor.detach().contiguous(), {tensor.numel()}); };
  const Shape batched = in.x.rank() == 3 ? in.x.shape() : Shape{1, in.x.size(0), in.x.size(1)};
  return {ops::reshaped_view(in.x.detach().contiguous(), batched), row(in.alpha), row(in.beta), row(in.up), row(in.down)};
}

Gradients snake_way_back(const AntialiasedSnake& in, const Tensor& g, Needs needs) {
  const AntialiasedSnake operands = dense(in);
  const auto fresh = [&](int input, const Tensor& like) {
    return needs[input] ? Tensor::empty(like.shape(), {like.dtype(), like.device()}) : Tensor();
  };
  const AntialiasedSnakeGradients out{fresh(0, operands.x), fresh(1, in.alpha), fresh(2, in.beta)};
  backend_of(g.device()).antialiased_snake_backward(out, operands, ops::reshaped_view(g.contiguous(), operands.x.shape()));
  return {needs[0] ? ops::reshaped_view(out.x, in.x.shape()) : Tensor(), out.alpha, out.beta};
}

}  // namespace

Tensor kaiser_sinc_filter(double cutoff, double half_width, std::int64_t kernel_size, const TensorOptions& options) {
  static constexpr const char* kName = "kaiser_sinc_filter";
  require<ShapeError>(kernel_size >= 1, kName, ": expected kernel_size >= 1, got ", kernel_size);
  require<ShapeError>(cutoff >= 0 && cutoff <= 0.5, kName, ": expected cutoff in [0, 0.5], got ", cutoff);
  require<ShapeError>(std::isfinite(half_width) && half_width >= 0, kName, ": expected half_width >= 0, got ", half_width);
  require<DTypeError>(is_floating_point(options.dtype), kName, ": expected a floating-point dtype, got ", options.dtype);
  const auto half = static_cast<double>(kernel_size / 2);
  const double beta = kaiser_beta(2.285 * (half - 1) * std::numbers::pi * 4 * half_width + 7.95);
  const double centre = static_cast<double>(kernel_size - 1) / 2;
  const auto tap = [&](std::int64_t i) {
    const double t = static_cast<double>(i) - centre;
    const double ratio = centre == 0 ? 0 : t / centre;
    const double window = bessel_i0(beta * std::sqrt(1 - ratio * ratio)) / bessel_i0(beta);
    return 2 * cutoff * window * sinc(2 * cutoff * t);
  };
  double total = 0;
  if (cutoff > 0)
    for (std::int64_t i = 0; i < kernel_size; ++i) total += tap(i);
  const auto value = [&](std::int64_t i) { return cutoff > 0 ? tap(i) / total : 0.0; };
  Tensor filter = ops::host_table<double>(kernel_size, value).to(options.dtype).to(options.device);
  if (options.requires_grad) filter.set_requires_grad(true);
  return filter;
}

Tensor antialias_up2(const Tensor& x, const Tensor& filter) {
  check("antialias_up2", x, filter);
  const std::int64_t K = filter.size(-1), pad = K / 2 - 1, crop = 2 * pad + (K - 2) / 2;
  const Tensor padded = pad1d(rows_of(x), pad, PaddingMode::replicate);
  const Tensor weight = mul(filter.reshape({1, 1, K}), 2);
  return shaped_like(conv_transpose1d(padded, weight, {}, {.stride = 2, .padding = crop}), x.shape());
}

Tensor antialias_down2(const Tensor& x, const Tensor& filter) {
  check("antialias_down2", x, filter);
  const std::int64_t K = filter.size(-1);
  const Tensor padded = pad1d(rows_of(x), {K / 2 - 1, K / 2}, PaddingMode::replicate);
  return shaped_like(conv1d(padded, filter.reshape({1, 1, K}), {}, {.stride = 2}), x.shape());
}

Tensor antialias(const Tensor& x, const std::function<Tensor(const Tensor&)>& activation, const Tensor& up,
                 const Tensor& down) {
  return antialias_down2(activation(antialias_up2(x, up)), down);
}

Tensor antialias_snake(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& up, const Tensor& down) {
  static constexpr const char* kName = "antialias_snake";
  check_snake(kName, {x, alpha, beta, up, down});
  const auto is_taken = [](const Tensor& filter) {
    return filter.size(-1) == TensorBackend::kAntialiasTaps && !follows_gradients(filter);
  };
  if (!is_taken(up) || !is_taken(down))
    return antialias(
        x, [&](const Tensor& y) { return snake_beta(y, alpha, beta); }, up, down);
  const AntialiasedSnake in{autograd::lowered(x), alpha, beta, up, down};
  const Tensor y = Tensor::empty(x.shape(), {in.x.dtype(), x.device()});
  const AntialiasedSnake operands = dense(in);
  backend_of(x.device()).antialiased_snake(ops::reshaped_view(y, operands.x.shape()), operands);
  const bool followed = follows_gradients(in.x) || follows_gradients(alpha) || follows_gradients(beta);
  return autograd::record(kName, y, {in.x, alpha, beta},
                          [sx = save_if(followed, in.x), sa = save_if(followed, alpha), sb = save_if(followed, beta),
                           su = save_if(followed, up), sd = save_if(followed, down)](const Tensor& g, Needs needs) {
                            return snake_way_back({sx.get(), sa.get(), sb.get(), su.get(), sd.get()}, g, needs);
                          });
}

}  // namespace polyphase
