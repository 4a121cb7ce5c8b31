#include "ops/linear_fused.hpp"

#include <algorithm>
#include <array>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/activations.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "ops/mac_counter.hpp"
#include "ops/norm.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kRowsMost = 64;  // no device has a kernel for more

bool is_row(const Tensor& tensor, std::int64_t size) {
  return !tensor.defined() || (tensor.shape() == Shape{size} && tensor.is_contiguous());
}

// Everything in the device's kernel; undefined where it has none or operands do not fit together.
Tensor in_one_kernel(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion) {
  const std::array all{x, weight, bias, fusion.norm_weight, fusion.norm_bias, fusion.scale, fusion.residual};
  const auto alike = [&](const Tensor& tensor) {
    return !tensor.defined() || (tensor.dtype() == x.dtype() && tensor.device() == x.device());
  };
  if (!x.defined() || !weight.defined() || !std::all_of(all.begin(), all.end(), alike)) return {};
  if (autocast_dtype() || autograd::should_record(all) || x.rank() < 1 || weight.rank() != 2 || x.numel() == 0) return {};
  const std::int64_t out = weight.size(0), in = weight.size(1), rows = x.numel() / std::max<std::int64_t>(1, x.size(-1));
  const bool fits = x.size(-1) == in && weight.is_contiguous() && out > 0 && rows <= kRowsMost && is_row(bias, out) &&
                    is_row(fusion.norm_weight, in) && is_row(fusion.norm_bias, in) && is_row(fusion.scale, out);
  if (!fits) return {};
  const NoGradGuard no_grad;
  const auto matrix = [&](const Tensor& tensor, std::int64_t columns) {
    return tensor.defined() ? ops::reshaped_view(tensor.detach().contiguous(), {rows, columns}) : tensor;
  };
  Shape shape = x.shape();
  shape[x.rank() - 1] = out;
  const Tensor y = Tensor::empty({rows, out}, {x.dtype(), x.device()});
  const LinearInputs inputs{.x = matrix(x, in),
                            .weight = weight,
                            .bias = bias,
                            .normalizes = fusion.norm_epsilon.has_value(),
                            .norm_weight = fusion.norm_weight,
                            .norm_bias = fusion.norm_bias,
                            .norm_epsilon = fusion.norm_epsilon.value_or(0),
                            .has_gelu = fusion.has_gelu,
                            .scale = fusion.scale,
                            .residual = matrix(fusion.residual, out)};
  if (!backend_of(x.device()).linear(y, inputs)) return {};
  ops::MacCounter::add(static_cast<double>(y.numel()) * static_cast<double>(in));
  return ops::reshaped_view(y, shape);
}

}  // namespace

Tensor linear_fused(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearFusion& fusion) {
  if (fusion.residual.defined() && x.defined() && weight.defined() && x.rank() >= 1 && weight.rank() == 2) {
    Shape shape = x.shape();
    shape[x.rank() - 1] = weight.size(0);
    require<ShapeError>(fusion.residual.shape() == shape, "linear_fused: expected residual ", shape, ", got ",
                        fusion.residual.shape());
  }
  if (Tensor y = in_one_kernel(x, weight, bias, fusion); y.defined()) return y;
  const bool normalizes = fusion.norm_epsilon.has_value();
  Tensor y = linear(normalizes ? layer_norm(x, fusion.norm_weight, fusion.norm_bias, *fusion.norm_epsilon) : x, weight, bias);
  if (fusion.has_gelu) y = gelu(y);
  if (fusion.scale.defined()) {
    require<ShapeError>(fusion.scale.shape() == Shape{y.size(-1)}, "linear_fused: expected scale (out=", y.size(-1), "), got ",
                        fusion.scale.shape());
    if (fusion.residual.defined()) return addcmul(fusion.residual, y, fusion.scale);
    y = mul(y, fusion.scale);
  }
  return fusion.residual.defined() ? add_scaled(fusion.residual, y, 1) : y;
}

}  // namespace polyphase
