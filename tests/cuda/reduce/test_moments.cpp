#include "cuda/reduce/moments.hpp"

#include <doctest/doctest.h>

#include "ops/elementwise.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

struct Both {
  Moments host, gpu;
};
Both moments_of(const Tensor& in, const Shape& kept, double q) {
  const auto poison = [&](const Shape& shape) { return poisoned(shape, in.dtype()); };
  Both out{{poison(kept), poison(kept), poison(kept), poison(in.shape())}, {}};
  out.gpu = {mirrored(out.host.mean), mirrored(out.host.rest), mirrored(out.host.variance), mirrored(out.host.centred)};
  host().moments(out.host, in, q);
  gpu().moments(out.gpu, mirrored(in), q);
  return out;
}

// The largest ratio of two tensors of positive numbers.
double largest_ratio(const Tensor& expected, const Tensor& got) {
  const auto a = expected.to(DType::f64).to_vector<double>(), b = got.cpu().to(DType::f64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = worse(worst, relative(a[i] - b[i], a[i]));
  return worst;
}

}  // namespace

TEST_CASE("the variance at any distance from zero is the host's in f64") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double offset : {0.0, 1.0, -1e3, 1e6, 1e7})
      for (const double scale : {1.0, 1e-3, 1e4})
        for (const std::int64_t n : {2, 1000, 100003}) {
          CAPTURE(dtype);
          CAPTURE(offset);
          CAPTURE(scale);
          CAPTURE(n);
          const Tensor x = (random_f64({3, n}, static_cast<std::uint64_t>(n)) * scale + offset).to(dtype);
          const Both got = moments_of(x, {3, 1}, 0.25);
          const Both exact = moments_of(x.to(DType::f64), {3, 1}, 0.25);
          CHECK(largest_ratio(exact.host.variance, got.gpu.variance) <=
                (dtype == DType::f32 ? kFloatVariance : kDoubleRounding));
          // If the totals differ in f64, the mean and the centred values may be neighbouring numbers.
          CHECK(max_difference(got.host.mean + got.host.rest, (got.gpu.mean + got.gpu.rest).cpu()) <=
                kFloatRounding * (std::abs(offset) + scale));
          CHECK(max_difference(x - got.gpu.mean.cpu(), got.gpu.centred.cpu()) == 0);
        }
}

TEST_CASE("every set of dimensions and any strides") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const Shape& kept : {Shape{1, 1, 1}, Shape{4, 1, 1}, Shape{1, 5, 1}, Shape{1, 1, 90}, Shape{4, 1, 90}, Shape{4, 5, 90}})
    for (const bool transposed : {false, true}) {
      CAPTURE(kept);
      const Tensor x = (random_f64({4, 5, 90}) + 1e5).to(DType::f32);
      const double q = static_cast<double>(kept.numel()) / static_cast<double>(x.numel());
      const Both got = moments_of(transposed ? x.transpose(0, 2).contiguous().transpose(0, 2) : x, kept, q);
      CHECK(max_difference(got.host.variance, got.gpu.variance.cpu()) <= 2 * kFloatVariance);
      CHECK(max_difference(x - got.gpu.mean.cpu(), got.gpu.centred.cpu()) == 0);
    }
}

TEST_CASE("nothing to sum, and no outputs") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Both none = moments_of(Tensor::zeros({0, 3}), {1, 3}, 0.5);
  CHECK(none.gpu.mean.to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(none.gpu.rest.to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(none.gpu.variance.to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(moments_of(Tensor::zeros({3, 0}), {1, 0}, 0.5).gpu.mean.numel() == 0);
}
