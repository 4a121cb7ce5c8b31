#include "ops/softmax.hpp"

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

namespace {

// x minus its maximum over `dim`, and the sum of its exponentials.
struct Shifted {
  Tensor x, exponential, total;
};
Shifted shifted(const char* name, const Tensor& x, int dim) {
  const NoGradGuard no_grad;
  Shape kept = x.shape();
  kept[dim] = 1;
  Shifted result;
  result.x = ops::map(name, MapOp::sub, {x, ops::reduce(ReduceOp::max, x, kept)});
  result.exponential = ops::map(name, MapOp::exp, {result.x});
  result.total = ops::reduce(ReduceOp::sum, result.exponential, kept);
  return result;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
  if (autograd::raises(x)) return softmax(autograd::raised(x), dim);
  ops::require_floating("softmax", x);
  const int d = normalize_dim("softmax", dim, x.rank());
  if (ops::is_half(x)) return softmax(x.to(DType::f32), d).to(x.dtype());
  Tensor y;
  if (x.numel() > 0) {
    const Shifted parts = shifted("softmax", x, d);
    y = ops::map("softmax", MapOp::div, {parts.exponential, parts.total});
  } else {
    y = Tensor::empty_like(x);
  }
  return autograd::record("softmax", y, {x}, [saved = autograd::save_if(follows_gradients(x), y), d](const Tensor& g, Needs) {
    const Tensor& share = saved.get();
    return Gradients{mul(share, sub(g, sum(mul(g, share), {d}, true)))};
  });
}

Tensor log_softmax(const Tensor& x, int dim) {
  if (autograd::raises(x)) return log_softmax(autograd::raised(x), dim);
  ops::require_floating("log_softmax", x);
  const int d = normalize_dim("log_softmax", dim, x.rank());
  if (ops::is_half(x)) return log_softmax(x.to(DType::f32), d).to(x.dtype());
  Tensor y;
  if (x.numel() > 0) {
    const Shifted parts = shifted("log_softmax", x, d);
    y = ops::map("log_softmax", MapOp::sub, {parts.x, ops::map("log_softmax", MapOp::log, {parts.total})});
  } else {
    y = Tensor::empty_like(x);
  }
  return autograd::record("log_softmax", y, {x},
                          [saved = autograd::save_if(follows_gradients(x), y), d](const Tensor& g, Needs) {
                            return Gradients{sub(g, mul(exp(saved.get()), sum(g, {d}, true)))};
                          });
}

}  // namespace polyphase
