#include "ops/reduce.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::Needs;
using autograd::raised;
using autograd::raises;
using autograd::record;
using autograd::save_if;
using autograd::Saved;

namespace {

// A reduction over some dimensions.
struct Plan {
  Shape kept;              // x's shape with 1 where reduced
  Shape dropped;           // without those dimensions
  std::int64_t count = 1;  // elements that go into one result
};

Plan plan_of(const char* name, const Tensor& x, const std::vector<int>& dims) {
  Plan plan{x.shape(), {}, 1};
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), false);
  for (const int dim : dims) {
    const int d = normalize_dim(name, dim, x.rank());
    require<ShapeError>(!reduced[static_cast<std::size_t>(d)], name, ": expected each dimension once, got ", dim, " twice");
    reduced[static_cast<std::size_t>(d)] = true;
    plan.kept[d] = 1;
    plan.count *= x.shape()[d];
  }
  for (int d = 0; d < x.rank(); ++d)
    if (!reduced[static_cast<std::size_t>(d)]) plan.dropped.push_back(x.shape()[d]);
  return plan;
}

std::vector<int> all_dims(const Tensor& x) {
  std::vector<int> dims(static_cast<std::size_t>(x.rank()));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Tensor shaped(const Tensor& kept, const Plan& plan, bool keepdim) {
  return keepdim ? kept : ops::reshaped_view(kept, plan.dropped);
}

// A gradient of the result, broadcast to x's shape.
Tensor spread(const Tensor& g, const Plan& plan, const Shape& x_shape) {
  return ops::broadcast_view(ops::reshaped_view(g.contiguous(), plan.kept), x_shape);
}

Tensor extreme(const char* name, ReduceOp op, const Tensor& x) {
  require<ShapeError>(x.numel() > 0, name, ": expected at least one element, got shape ", x.shape());
  return ops::reshaped_view(ops::reduce(op, x, Shape::filled(x.rank(), 1)), {});
}

}  // namespace

Tensor sum(const Tensor& x) { return sum(x, all_dims(x)); }
Tensor mean(const Tensor& x) { return mean(x, all_dims(x)); }
Tensor norm(const Tensor& x) { return norm(x, all_dims(x)); }

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  if (raises(x)) return sum(raised(x), dims, keepdim);
  const Plan plan = plan_of("sum", x, dims);
  Tensor out = shaped(ops::reduce(ReduceOp::sum, x, plan.kept), plan, keepdim);
  return record("sum", std::move(out), {x},
                [plan, shape = x.shape()](const Tensor& g, Needs) { return Gradients{spread(g, plan, shape)}; });
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  if (raises(x)) return mean(raised(x), dims, keepdim);
  ops::require_floating("mean", x);
  // 16-bit types are reduced in f32, so that a sum above 65504 does not spoil a mean and the result is rounded once.
  if (ops::is_half(x)) return mean(x.to(DType::f32), dims, keepdim).to(x.dtype());
  const Plan plan = plan_of("mean", x, dims);
  // The mean of an empty set is 0/0.
  const double scale = plan.count > 0 ? 1.0 / static_cast<double>(plan.count) : std::numeric_limits<double>::quiet_NaN();
  return mul(sum(x, dims, keepdim), scale);
}

Tensor var(const Tensor& x, const std::vector<int>& dims, bool keepdim, std::int64_t correction) {
  if (raises(x)) return var(raised(x), dims, keepdim, correction);
  ops::require_floating("var", x);
  if (ops::is_half(x)) return var(x.to(DType::f32), dims, keepdim, correction).to(x.dtype());
  const Plan plan = plan_of("var", x, dims);
  const double divisor = static_cast<double>(std::max<std::int64_t>(plan.count - correction, 0));
  const double scale = divisor > 0 ? 1 / divisor : std::numeric_limits<double>::quiet_NaN();
  const Moments moments = ops::moments(x, plan.kept, scale);
  return record("var", shaped(moments.variance, plan, keepdim), {x},
                [plan, scale, saved = save_if(follows_gradients(x), x), mean = moments.mean, rest = moments.rest](
                    const Tensor& g, Needs) {
                  // 2*scale*g*(x - mean - rest)
                  const Tensor slope = mul(ops::reshaped_view(g.contiguous(), plan.kept), 2 * scale);
                  return Gradients{ops::map("var", MapOp::scale_around, {saved.get(), mean, slope, -mul(rest, slope)})};
                });
}

Tensor max(const Tensor& x) { return extreme("max", ReduceOp::max, x); }
Tensor min(const Tensor& x) { return extreme("min", ReduceOp::min, x); }

Tensor norm(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  if (raises(x)) return norm(raised(x), dims, keepdim);
  ops::require_floating("norm", x);
  if (ops::is_half(x)) return norm(x.to(DType::f32), dims, keepdim).to(x.dtype());
  const Plan plan = plan_of("norm", x, dims);
  const Tensor norms = ops::map("norm", MapOp::sqrt, {ops::reduce(ReduceOp::sum_of_squares, x, plan.kept)});
  return record("norm", shaped(norms, plan, keepdim), {x},
                [plan, saved = save_if(follows_gradients(x), x), saved_norm = Saved(norms)](const Tensor& g, Needs) {
                  const Tensor& kept = saved_norm.get();
                  // g/norm, or 0 if the norm is 0: then all of x is 0.
                  const Tensor g_kept = ops::reshaped_view(g.contiguous(), plan.kept);
                  const Tensor scale = where(kept, div(g_kept, kept), Tensor::zeros({}, {g.dtype(), g.device()}));
                  return Gradients{mul(saved.get(), scale)};
                });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int lead = x.rank() - shape.rank();
  Shape kept = Shape::filled(x.rank(), 1);
  bool fits = lead >= 0;
  for (int d = 0; fits && d < shape.rank(); ++d) {
    kept[lead + d] = shape[d];
    fits = shape[d] == 1 || shape[d] == x.shape()[lead + d];
  }
  require<ShapeError>(fits, "sum_to: expected a shape that broadcasts to ", x.shape(), ", got ", shape);
  Tensor out = ops::reshaped_view(ops::reduce(ReduceOp::sum, x, kept), shape);
  return record("sum_to", std::move(out), {x},
                [x_shape = x.shape()](const Tensor& g, Needs) { return Gradients{ops::broadcast_view(g, x_shape)}; });
}

}  // namespace polyphase
