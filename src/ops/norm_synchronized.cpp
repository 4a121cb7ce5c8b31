#include "ops/norm.hpp"

#include <vector>

#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"

namespace polyphase::ops {
namespace {

// (1, C) or (1, C, 1): broadcasts with x.
Shape per_channel(const Tensor& x) {
  Shape shape = Shape::filled(x.rank(), 1);
  shape[1] = x.size(1);
  return shape;
}

// The sums over all processes of `a` and `b`, both (1, C, ...), in f64, and of `count`: (2C + 1).
struct Sums {
  Tensor a, b;   // (C) f64
  Tensor count;  // () f64
};
Sums sum_over(StatisticsSum& over, const Tensor& a, const Tensor& b, double count) {
  const std::int64_t channels = a.numel();
  const Tensor packed = cat({a.to(DType::f64).reshape({channels}), b.to(DType::f64).reshape({channels}),
                             Tensor::full({1}, count, {.dtype = DType::f64, .device = a.device()})},
                            0);
  over.sum(packed);
  return {packed.narrow(0, 0, channels), packed.narrow(0, channels, channels), packed.select(0, 2 * channels)};
}

}  // namespace

SynchronizedBatch normalize_synchronized(const Tensor& x, double epsilon, StatisticsSum& over) {
  const double own_count = x.size(1) > 0 ? static_cast<double>(x.numel() / x.size(1)) : 0;
  require<ShapeError>(own_count >= 1, "batch_norm: expected at least one value per channel on every rank, got x ", x.shape());
  const Shape kept = per_channel(x);
  SynchronizedBatch batch;
  Tensor scale, count;
  {
    const NoGradGuard no_grad;
    const Moments own = moments(x, kept, 1 / own_count);
    const Tensor own_mean = own.mean.to(DType::f64) + own.rest.to(DType::f64);
    const Sums means = sum_over(over, own_mean * own_count, Tensor::zeros_like(own_mean), own_count);
    count = means.count;
    const Tensor mean = means.a / count;
    const Tensor off = own_mean.reshape({x.size(1)}) - mean;
    const Tensor own_squares = (own.variance.to(DType::f64).reshape({x.size(1)}) + off * off) * own_count;
    const Tensor variance = sum_over(over, own_squares, Tensor::zeros_like(own_squares), 0).a / count;
    const Tensor scale64 = rsqrt(variance + epsilon);
    // The mean is rounded to x's dtype; what is lost moves to the shift.
    const Tensor rounded = mean.to(x.dtype());
    const Tensor shift = (rounded.to(DType::f64) - mean) * scale64;
    scale = scale64.to(x.dtype()).reshape(kept);
    batch.normal = map("batch_norm", MapOp::scale_around, {x, rounded.reshape(kept), scale, shift.to(x.dtype()).reshape(kept)});
    batch.mean = rounded;
    batch.unbiased = (variance * count / (count - 1.0)).to(x.dtype());
  }
  const autograd::Saved saved = autograd::save_if(autograd::follows_gradients(x), batch.normal);
  batch.normal =
      autograd::record("batch_norm", batch.normal, {x}, [saved, scale, count, kept, &over](const Tensor& g, autograd::Needs) {
        // dx = (g - mean(g) - y*mean(g*y)) / sqrt(variance + epsilon), the means over all processes.
        const Tensor& normal = saved.get();
        const Sums sums = sum_over(over, sum_to(g, kept), sum_to(mul(g, normal), kept), 0);
        const Tensor mean = (sums.a / count).to(g.dtype()).reshape(kept);
        const Tensor along = (sums.b / count).to(g.dtype()).reshape(kept);
        return autograd::Gradients{mul(sub(sub(g, mean), mul(normal, along)), scale)};
      });
  return batch;
}

}  // namespace polyphase::ops
