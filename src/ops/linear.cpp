#include "ops/linear.hpp"

#include <array>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/mac_counter.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::lowered;
using autograd::Needs;
using autograd::record;
using autograd::save_if;

namespace {

Shape leading(const Shape& shape) {
  Shape result;
  for (int d = 0; d + 2 < shape.rank(); ++d) result.push_back(shape[d]);
  return result;
}

Shape with_tail(Shape shape, std::int64_t rows, std::int64_t columns) {
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

// The backend's form: batch sizes are broadcast and merged into one.
Tensor batched(const Tensor& a, const Shape& batch) {
  const Tensor wide = ops::broadcast_view(a, with_tail(batch, a.size(-2), a.size(-1)));
  return wide.reshape({batch.numel(), a.size(-2), a.size(-1)});
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  const NoGradGuard no_grad;  // reshape must not record
  const Shape batch = broadcast_shapes("matmul", leading(a.shape()), leading(b.shape()));
  const Tensor out = Tensor::empty({batch.numel(), a.size(-2), b.size(-1)}, {a.dtype(), a.device()});
  if (out.numel() > 0) {
    if (a.size(-1) == 0) {
      backend_of(a.device()).fill(out, 0);
    } else {
      ops::MacCounter::add(static_cast<double>(out.numel()) * static_cast<double>(a.size(-1)));
      backend_of(a.device()).matmul(out, batched(a, batch), batched(b, batch));
    }
  }
  return ops::reshaped_view(out, with_tail(batch, a.size(-2), b.size(-1)));
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  ops::require_defined("linear", "x", x);
  ops::require_defined("linear", "weight", weight);
  ops::require_floating("linear", x);
  ops::require_alike("linear", std::array{x, weight, bias});
  require<ShapeError>(weight.rank() == 2, "linear: expected weight (out, in), got ", weight.shape());
  require<ShapeError>(x.rank() >= 1 && x.size(-1) == weight.size(1), "linear: expected x (..., in=", weight.size(1), "), got ",
                      x.shape());
  require<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "linear: expected bias (out=", weight.size(0),
                      "), got ", bias.defined() ? bias.shape() : Shape{});
}

}  // namespace

Tensor matmul(const Tensor& left, const Tensor& right) {
  const Tensor a = lowered(left), b = lowered(right);
  ops::require_defined("matmul", "a", a);
  ops::require_defined("matmul", "b", b);
  ops::require_floating("matmul", a);
  ops::require_alike("matmul", std::array{a, b});
  require<ShapeError>(a.rank() >= 2 && b.rank() >= 2, "matmul: expected (..., M, K) and (..., K, N), got ", a.shape(), " and ",
                      b.shape());
  require<ShapeError>(a.size(-1) == b.size(-2), "matmul: expected b (..., K=", a.size(-1), ", N), got ", b.shape());
  return record("matmul", multiply(a, b), {a, b},
                [sa = save_if(follows_gradients(b), a), sb = save_if(follows_gradients(a), b), a_shape = a.shape(),
                 b_shape = b.shape()](const Tensor& g, Needs needs) {
                  Gradients gradients(2);
                  if (needs[0]) gradients[0] = sum_to(multiply(g, sb.get().transpose(-2, -1)), a_shape);
                  if (needs[1]) gradients[1] = sum_to(multiply(sa.get().transpose(-2, -1), g), b_shape);
                  return gradients;
                });
}

Tensor linear(const Tensor& input, const Tensor& w, const Tensor& b) {
  const Tensor x = lowered(input), weight = lowered(w), bias = lowered(b);
  check_linear(x, weight, bias);
  const std::int64_t in = weight.size(1);
  const std::int64_t out = weight.size(0);
  Shape rows_shape = x.shape();
  rows_shape[x.rank() - 1] = 1;
  const std::int64_t rows = rows_shape.numel();
  const auto forward = [&] {
    const NoGradGuard no_grad;
    const Tensor y = multiply(x.reshape({rows, in}), weight.transpose(0, 1));
    return bias.defined() ? ops::map("linear", MapOp::add, {y, bias}) : y;
  };
  Shape y_shape = x.shape();
  y_shape[x.rank() - 1] = out;
  return record("linear", ops::reshaped_view(forward(), y_shape), {x, weight, bias},
                [sx = save_if(follows_gradients(weight), x), sw = save_if(follows_gradients(x), weight), x_shape = x.shape(),
                 rows, in, out](const Tensor& g, Needs needs) {
                  const Tensor g_rows = g.reshape({rows, out});
                  Gradients gradients(3);
                  if (needs[0]) gradients[0] = multiply(g_rows, sw.get()).reshape(x_shape);
                  if (needs[1]) gradients[1] = multiply(g_rows.transpose(0, 1), sx.get().reshape({rows, in}));
                  if (needs[2]) gradients[2] = sum(g_rows, {0});
                  return gradients;
                });
}

}  // namespace polyphase
