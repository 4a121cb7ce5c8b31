#include "ops/antialias.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/autocast.hpp"
#include "autograd/gradcheck.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;

Tensor filter_f64() { return kaiser_sinc_filter(0.25, 0.3, 12, {.dtype = DType::f64}); }

double at(const Values& x, std::int64_t i) {
  const auto last = static_cast<std::int64_t>(x.size()) - 1;
  return x[static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, last))];
}

Values plain_up(const Values& x, const Values& f) {
  const auto K = static_cast<std::int64_t>(f.size()), L = static_cast<std::int64_t>(x.size());
  Values y;
  for (std::int64_t t = 0; t < 2 * L; ++t) {
    double total = 0;
    for (std::int64_t i = -K; i < L + K; ++i) {
      const std::int64_t k = t + K / 2 - 1 - 2 * i;
      if (k >= 0 && k < K) total += 2 * f[static_cast<std::size_t>(k)] * at(x, i);
    }
    y.push_back(total);
  }
  return y;
}

Values plain_down(const Values& x, const Values& f) {
  const auto K = static_cast<std::int64_t>(f.size()), L = static_cast<std::int64_t>(x.size());
  Values y;
  for (std::int64_t t = 0; t < (L + 1) / 2; ++t) {
    double total = 0;
    for (std::int64_t k = 0; k < K; ++k) total += f[static_cast<std::size_t>(k)] * at(x, 2 * t + k - (K / 2 - 1));
    y.push_back(total);
  }
  return y;
}

// I0(x) as the integral (1/pi) of exp(x cos u) over [0, pi]; this rule is exact for a periodic function.
double integral_i0(double x) {
  double total = 0;
  for (int i = 0; i < 64; ++i) total += std::exp(x * std::cos(std::numbers::pi * (i + 0.5) / 64)) / 64;
  return total;
}

}  // namespace

TEST_CASE("kaiser_sinc_filter is the formula: attenuations above 50, between 21 and 50, and below 21 dB, even and odd") {
  struct Case {
    double cutoff, half_width;
    std::int64_t taps;
    double beta;
  };
  const auto attenuation = [](double half, double half_width) {
    return 2.285 * (half - 1) * std::numbers::pi * 4 * half_width + 7.95;
  };
  const double high = attenuation(6, 0.3), middle = attenuation(6, 0.12), low = attenuation(3, 0.05);
  CHECK(high > 50);
  CHECK(middle > 21);
  CHECK(middle < 50);
  CHECK(low < 21);
  const double middle_beta = 0.5842 * std::pow(middle - 21, 0.4) + 0.07886 * (middle - 21);
  for (const Case& c : {Case{0.25, 0.3, 12, 0.1102 * (high - 8.7)}, Case{0.25, 0.12, 13, middle_beta}, Case{0.1, 0.05, 7, 0}}) {
    CAPTURE(c.taps);
    Values expected;
    double total = 0;
    for (std::int64_t i = 0; i < c.taps; ++i) {
      const double half = static_cast<double>(c.taps - 1) / 2, t = static_cast<double>(i) - half, x = 2 * c.cutoff * t;
      const double window = integral_i0(c.beta * std::sqrt(1 - t * t / (half * half))) / integral_i0(c.beta);
      expected.push_back(window * (x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x)));
      total += expected.back();
    }
    for (double& value : expected) value /= total;
    CHECK(max_difference(kaiser_sinc_filter(c.cutoff, c.half_width, c.taps, {.dtype = DType::f64}),
                         Tensor::from_vector(expected)) <= kDoubleRounding);
  }
  CHECK(kaiser_sinc_filter(0.25, 0.3, 12).dtype() == DType::f32);
  CHECK(kaiser_sinc_filter(0.5, 0.3, 1, {.dtype = DType::f64}).to_vector<double>() == Values{1});
  CHECK(max(abs(kaiser_sinc_filter(0, 0.3, 4))).item() == 0);
}

TEST_CASE("antialias_up2 and antialias_down2 are their sums at every length") {
  const Values f = filter_f64().to_vector<double>();
  for (const std::int64_t length : {1, 2, 3, 5, 12, 33}) {
    CAPTURE(length);
    const Tensor x = random_f64({length});
    const Values in = x.to_vector<double>();
    CHECK(max_difference(antialias_up2(x, filter_f64()), Tensor::from_vector(plain_up(in, f))) <= kDoubleRounding);
    CHECK(max_difference(antialias_down2(x, filter_f64()), Tensor::from_vector(plain_down(in, f))) <= kDoubleRounding);
  }
  const Tensor x = random_f64({9}), other = random_f64({6}, 5);
  const Values g = other.to_vector<double>();
  CHECK(max_difference(antialias_up2(x, other), Tensor::from_vector(plain_up(x.to_vector<double>(), g))) <= kDoubleRounding);
  CHECK(max_difference(antialias_down2(x, other), Tensor::from_vector(plain_down(x.to_vector<double>(), g))) <=
        kDoubleRounding);
}

TEST_CASE("antialias: shapes, precisions, gradients, empty") {
  const Tensor f = filter_f64(), x = random_f64({2, 3, 21});
  const auto act = [](const Tensor& y) { return tanh(y); };
  const Tensor y = antialias(x, act, f, f.reshape({1, 1, 12}));
  CHECK(y.shape() == x.shape());
  CHECK(max_difference(y.select(0, 1), antialias(x.select(0, 1), act, f, f)) <= kDoubleRounding);
  const auto reduced = [&](DType dtype) { return antialias(x.to(dtype), act, f.to(dtype), f.to(dtype)); };
  CHECK(max_difference(reduced(DType::f32), y) <= kFloatFunction);
  CHECK(max_difference(reduced(DType::f16), y) <= 4 * kHalfRounding);
  CHECK(max_difference(reduced(DType::bf16), y) <= 4 * kBFloat16Rounding);
  CHECK(gradcheck([&](const Inputs& in) { return antialias(in[0], act, in[1], in[2]); },
                  {leaf_f64({2, 2, 7}), leaf_f64({12}, 2), leaf_f64({1, 1, 12}, 3)}) == "");
  CHECK(antialias(random_f64({0, 3, 5}), act, f, f).shape() == Shape{0, 3, 5});
}

TEST_CASE("antialias_snake is antialias with snake_beta: shapes, filters, gradients") {
  const Tensor f = filter_f64(), other = random_f64({12}, 5), alpha = uniform_f64({3}, 0.5, 2, 3),
               beta = uniform_f64({3}, 0.5, 2, 4);
  const auto steps = [](const Inputs& in) {
    return antialias(
        in[0], [&](const Tensor& y) { return snake_beta(y, in[1], in[2]); }, in[3], in[4]);
  };
  const auto pass = [](const Inputs& in) { return antialias_snake(in[0], in[1], in[2], in[3], in[4]); };
  for (const Shape& shape : {Shape{2, 3, 41}, Shape{3, 41}, Shape{3, 1}, Shape{2, 3, 2}}) {
    const Inputs in{random_f64(shape), alpha, beta, f, other.reshape({1, 1, 12})};
    CHECK(pass(in).shape() == shape);
    CHECK(max_difference(pass(in), steps(in)) <= kDoubleRounding);
  }
  const Tensor strided = random_f64({41, 3, 2}).permute({2, 1, 0});
  CHECK(max_difference(pass({strided, alpha, beta, f, f}), pass({strided.contiguous(), alpha, beta, f, f})) == 0);
  CHECK(pass({random_f64({0, 3, 5}), alpha, beta, f, f}).shape() == Shape{0, 3, 5});
  const Tensor a = leaf_of({0.7, 1.6}), b = leaf_of({0.9, 1.8});
  for (const Shape& shape : {Shape{2, 2, 9}, Shape{2, 9}, Shape{1, 2, 1}, Shape{1, 2, 2}})
    CHECK(gradcheck(pass, {leaf_f64(shape), a, b, f, other}) == "");
  CHECK(gradcheck(pass, {leaf_f64({2, 2, 9}), a.detach(), b.detach(), f, other}) == "");
  CHECK(gradcheck(pass, {random_f64({2, 2, 9}), a, b.detach(), f, other}) == "");
  // Filters that require gradients, and filters of another length, are computed step by step.
  CHECK(gradcheck(pass, {leaf_f64({2, 2, 5}), a, b, leaf_f64({12}, 2), leaf_f64({12}, 3)}) == "");
  CHECK(max_difference(pass({strided, alpha, beta, random_f64({6}), f}), steps({strided, alpha, beta, random_f64({6}), f})) ==
        0);
}

TEST_CASE("antialias_snake is no further from float64 than antialias, and rounds 16-bit results once") {
  const Tensor x = random_f64({2, 3, 700}), alpha = uniform_f64({3}, 0.5, 4, 3), beta = uniform_f64({3}, 0.3, 2, 4);
  const auto off = [](const Tensor& y, const Tensor& exact) { return norm(y.to(DType::f64) - exact).item(); };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const Tensor filter = filter_f64().to(dtype), g = random_f64(x.shape(), 9).to(dtype);
    struct Result {
      Tensor y, x;
    };
    const auto run = [&](const auto& function, auto cast) {
      const Tensor a = cast(alpha.to(dtype)), b = cast(beta.to(dtype)), v = cast(x.to(dtype));
      for (Tensor leaf : {a, b, v}) leaf.set_requires_grad(true);
      const Tensor y = function(v, a, b, cast(filter));
      y.backward(cast(g));
      return Result{y.detach(), v.grad()};
    };
    const auto steps = [](const Tensor& v, const Tensor& a, const Tensor& b, const Tensor& f) {
      return antialias(
          v, [&](const Tensor& y) { return snake_beta(y, a, b); }, f, f);
    };
    const auto pass = [](const Tensor& v, const Tensor& a, const Tensor& b, const Tensor& f) {
      return antialias_snake(v, a, b, f, f);
    };
    const Result exact = run(steps, [](const Tensor& t) { return t.to(DType::f64); });
    const auto same = [](const Tensor& t) { return t.clone(); };
    const Result apart = run(steps, same), once = run(pass, same);
    CHECK(once.y.dtype() == dtype);
    CHECK(off(once.y, exact.y) <= 1.1 * off(apart.y, exact.y));
    CHECK(off(once.x, exact.x) <= 1.1 * off(apart.x, exact.x));
    if (dtype == DType::f32) continue;
    const double unit = dtype == DType::f16 ? kHalfUnit : kBFloat16Unit;
    const std::vector<double> y = once.y.to(DType::f64).to_vector<double>(), expected = exact.y.to_vector<double>();
    for (std::size_t i = 0; i < y.size(); ++i)
      REQUIRE(std::abs(y[i] - expected[i]) <= (unit + kFloatFunction) * std::max(1.0, std::abs(expected[i])));
  }
}

TEST_CASE("antialias_snake under a guard: x is cast, parameters stay, gradients have their dtypes") {
  const Tensor f = filter_f64().to(DType::f32);
  const auto leaf = [](const Tensor& tensor) { return tensor.to(DType::f32).set_requires_grad(true); };
  const Tensor x = leaf(random_f64({2, 3, 30})), alpha = leaf(uniform_f64({3}, 0.5, 2, 3)),
               beta = leaf(uniform_f64({3}, 0.5, 2, 4));
  Tensor y;
  {
    const AutocastGuard guard(DType::bf16);
    y = antialias_snake(x, alpha, beta, f, f);
  }
  CHECK(y.dtype() == DType::bf16);
  const auto wide = [](const Tensor& tensor) { return tensor.detach().to(DType::f64); };
  CHECK(max_difference(y, antialias_snake(wide(x.to(DType::bf16)), wide(alpha), wide(beta), wide(f), wide(f))) <=
        4 * kBFloat16Rounding);
  sum(y).backward();
  for (const Tensor& tensor : {x, alpha, beta}) CHECK(tensor.grad().dtype() == DType::f32);
}

TEST_CASE("antialias_snake: errors") {
  const Tensor f = filter_f64(), x = random_f64({2, 3, 8}), ones = Tensor::ones({3}, {.dtype = DType::f64});
  CHECK(error_of<ShapeError>([&] { return antialias_snake(x, ones, random_f64({2}), f, f); }) ==
        "antialias_snake: expected beta (C=3), got (2,)");
  CHECK(error_of<ShapeError>([&] { return antialias_snake(random_f64({8}), ones, ones, f, f); }) ==
        "antialias_snake: expected x (N, C, L) or (C, L), got (8,)");
  CHECK(error_of<ShapeError>([&] {
          return antialias_snake(random_f64({2, 3, 0}), ones, ones, f, f);
        }) == "antialias_snake: expected x (..., L >= 1), got (2, 3, 0)");
  CHECK(error_of<ShapeError>([&] { return antialias_snake(x, ones, ones, f, random_f64({5})); }) ==
        "antialias_snake: expected filter (K) or (1, 1, K) with K even, got (5,)");
  CHECK(error_of<DTypeError>([&] { return antialias_snake(x, ones.to(DType::f32), ones, f, f); }) ==
        "antialias_snake: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<Error>([&] { return antialias_snake(x, ones, Tensor(), f, f); }) ==
        "antialias_snake: the tensor is undefined");
}

TEST_CASE("antialias: errors") {
  const Tensor f = filter_f64();
  CHECK(error_of<ShapeError>([&] {
          return antialias_up2(random_f64({2, 0}), f);
        }) == "antialias_up2: expected x (..., L >= 1), got (2, 0)");
  CHECK(error_of<ShapeError>([&] {
          return antialias_down2(random_f64({2, 4}), random_f64({5}));
        }) == "antialias_down2: expected filter (K) or (1, 1, K) with K even, got (5,)");
  CHECK(error_of<DTypeError>([&] { return antialias_up2(Tensor::zeros({4}, {.dtype = DType::i64}), f); }) ==
        "antialias_up2: expected a floating-point tensor, got i64");
  CHECK(error_of<Error>([&] { return antialias_up2(random_f64({4}), Tensor()); }) == "antialias_up2: the filter is undefined");
  CHECK(error_of<ShapeError>([] { return kaiser_sinc_filter(0.6, 0.3, 12); }) ==
        "kaiser_sinc_filter: expected cutoff in [0, 0.5], got 0.6");
  CHECK(error_of<ShapeError>([] { return kaiser_sinc_filter(0.2, -1, 12); }) ==
        "kaiser_sinc_filter: expected half_width >= 0, got -1");
  CHECK(error_of<ShapeError>([] { return kaiser_sinc_filter(0.2, 0.3, 0); }) ==
        "kaiser_sinc_filter: expected kernel_size >= 1, got 0");
}
