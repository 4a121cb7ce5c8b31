#include "cpu/reduce/moments.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/threads.hpp"
#include "ops/elementwise.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Moments moments_of(const Tensor& in, const Shape& kept, double q) {
  const auto poison = [&](const Shape& shape) { return Tensor::full(shape, 7, {.dtype = in.dtype()}); };
  const Moments out{poison(kept), poison(kept), poison(kept), poison(in.shape())};
  cpu::moments(out, in, q);
  return out;
}

struct Exact {
  long double mean = 0, squares = 0;
};
// Two passes over one row in long double.
Exact exact(const std::vector<double>& row) {
  Exact result;
  for (const double value : row) result.mean += value;
  result.mean /= static_cast<long double>(row.size());
  for (const double value : row) result.squares += (value - result.mean) * (value - result.mean);
  return result;
}

double error(double got, long double expected) {
  return relative(static_cast<double>(got - expected), static_cast<double>(expected));
}

}  // namespace

TEST_CASE("mean, its rest and the variance at any distance from zero") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double offset : {0.0, 1.0, -1e3, 1e6, 1e7})
      for (const double scale : {1.0, 1e-3, 1e4})
        for (const std::int64_t n : {2, 3, 1000, 20000}) {
          CAPTURE(dtype);
          CAPTURE(offset);
          CAPTURE(scale);
          CAPTURE(n);
          const Tensor x = (random_f64({n}, static_cast<std::uint64_t>(n)) * scale + offset).to(dtype);
          const Exact expected = exact(x.to(DType::f64).to_vector<double>());
          const Moments got = moments_of(x, {1}, 0.25);
          const double unit = dtype == DType::f32 ? 0x1p-24 : 0x1p-53;
          CHECK(std::abs(got.mean.item() + got.rest.item() - static_cast<double>(expected.mean)) <=
                4 * unit * (std::abs(offset) * unit * static_cast<double>(n) + scale));
          CHECK(error(got.variance.item(), expected.squares / 4) <= (dtype == DType::f32 ? kFloatVariance : kDoubleRounding));
          CHECK(max_difference(got.centred, x - got.mean.item()) == 0);
        }
}

TEST_CASE("every set of dimensions, any strides, the same bits everywhere") {
  const int threads = num_threads();
  for (const Shape& kept : {Shape{1, 1, 1}, Shape{4, 1, 1}, Shape{1, 5, 1}, Shape{1, 1, 90}, Shape{4, 1, 90}, Shape{4, 5, 90}})
    for (const bool transposed : {false, true}) {
      CAPTURE(kept);
      const Tensor wide = (random_f64({4, 5, 90}) + 1e5).to(DType::f32);
      const Tensor x = transposed ? wide.transpose(0, 2).contiguous().transpose(0, 2) : wide;
      const double n = static_cast<double>(x.numel()) / static_cast<double>(kept.numel());
      const Moments wanted = moments_of(x.to(DType::f64), kept, 1 / n);
      set_num_threads(1);
      const Moments alone = moments_of(x, kept, 1 / n);
      CHECK(max_difference(alone.variance, wanted.variance) <= kFloatVariance * 2);
      CHECK(max_difference(alone.mean, wanted.mean) <= 1e5 * 0x1p-24);
      CHECK(max_difference(alone.centred, x - alone.mean) == 0);
      for_each_isa([&] {
        set_num_threads(3);
        const Moments again = moments_of(x, kept, 1 / n);
        CHECK(again.variance.to_vector<float>() == alone.variance.to_vector<float>());
        CHECK(again.rest.to_vector<float>() == alone.rest.to_vector<float>());
      });
    }
  set_num_threads(threads);
}

TEST_CASE("equal numbers vary by nothing, never by less") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t n : {1, 3, 7, 1000, 4097}) {
      const double variance = moments_of(Tensor::full({n}, 0.1, {.dtype = dtype}), {1}, 1).variance.item();
      CHECK(variance >= 0);
      CHECK(variance <= 1e-30);
    }
}

TEST_CASE("nothing to sum, and what is not finite") {
  const Moments none = moments_of(Tensor::zeros({0, 3}), {1, 3}, 0.5);
  CHECK(none.mean.to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(none.variance.to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(moments_of(Tensor::zeros({3, 0}), {1, 0}, 0.5).mean.numel() == 0);
  CHECK(std::isnan(moments_of(Tensor::from_vector<float>({1, INFINITY, 2}), {1}, 1).variance.item()));
  CHECK(std::isnan(moments_of(Tensor::from_vector<float>({1, NAN, 2}), {1}, 1).variance.item()));
}
