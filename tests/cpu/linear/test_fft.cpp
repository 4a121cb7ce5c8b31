#include "cpu/linear/fft.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/fourier.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const double kTwoPi = 2 * std::acos(-1.0);

Tensor forward(const Tensor& x) {
  Tensor out = Tensor::full({x.size(0), x.size(1) / 2 + 1, 2}, 7, {.dtype = x.dtype()});
  cpu::rfft(out, x);
  return out;
}
Tensor adjoint(const Tensor& bins) {
  Tensor out = Tensor::full({bins.size(0), 2 * (bins.size(1) - 1)}, 7, {.dtype = bins.dtype()});
  cpu::rfft_adjoint(out, bins);
  return out;
}

// Both transforms by their definitions.
Tensor plain_forward(const Tensor& x) {
  const std::int64_t R = x.size(0), n = x.size(1);
  Tensor out = Tensor::zeros({R, n / 2 + 1, 2}, {.dtype = DType::f64});
  double* to = out.data<double>();
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t f = 0; f <= n / 2; ++f, to += 2)
      for (std::int64_t t = 0; t < n; ++t) {
        const double angle = kTwoPi * static_cast<double>(f * t % n) / static_cast<double>(n);
        to[0] += x.data<double>()[r * n + t] * std::cos(angle);
        to[1] -= x.data<double>()[r * n + t] * std::sin(angle);
      }
  return out;
}
Tensor plain_adjoint(const Tensor& bins) {
  const std::int64_t R = bins.size(0), n = 2 * (bins.size(1) - 1);
  Tensor out = Tensor::zeros({R, n}, {.dtype = DType::f64});
  for (std::int64_t i = 0; i < R * n; ++i)
    for (std::int64_t f = 0; f <= n / 2; ++f) {
      const double* bin = bins.data<double>() + (i / n * (n / 2 + 1) + f) * 2;
      const double angle = kTwoPi * static_cast<double>(f * (i % n) % n) / static_cast<double>(n);
      out.data<double>()[i] += bin[0] * std::cos(angle) - bin[1] * std::sin(angle);
    }
  return out;
}

double largest(const Tensor& t) { return max_difference(t, Tensor::zeros(t.shape(), {.dtype = DType::f64})); }

constexpr std::int64_t kLengths[] = {2,  4,  6,  8,   10,  12,  14,  16,  18,  30,   32,
                                     64, 74, 90, 120, 128, 202, 240, 256, 614, 1018, 1024};

}  // namespace

TEST_CASE("both directions agree with their definitions") {
  for (const std::int64_t n : kLengths) {
    CAPTURE(n);
    const Tensor x = random_f64({3, n}), bins = random_f64({3, n / 2 + 1, 2}, 2);
    const Tensor want = plain_forward(x), back = plain_adjoint(bins);
    for_each_isa([&] {
      CAPTURE(cpu_isa());
      CHECK(max_difference(forward(x), want) <= kDoubleRounding * largest(want));
      CHECK(max_difference(adjoint(bins), back) <= kDoubleRounding * largest(back));
      CHECK(max_difference(forward(x.to(DType::f32)), want) <= kFloatFft * largest(want));
      CHECK(max_difference(adjoint(bins.to(DType::f32)), back) <= kFloatFft * largest(back));
    });
  }
}

TEST_CASE("f32 and f64 are as accurate as pocketfft, for all factors of the length") {
  for (const FftCase& item : reference_cases()) {
    const auto& [x, bins, bound] = item;
    const std::string row = concat(x.shape(), " of ", x.dtype());
    INFO(row);
    CHECK(fft_error(x, forward(x)) <= bound);
    CHECK(fft_adjoint_error(bins, adjoint(bins)) <= bound);
  }
}

TEST_CASE("the row count and the threads do not change a bit") {
  std::int64_t n = 240;
  SUBCASE("of a plain transform") {}
  SUBCASE("of a convolution") { n = 614; }
  const Tensor x = random_f64({37, n}).to(DType::f32);
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<float> all = forward(x).to_vector<float>();
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    CHECK(forward(x).to_vector<float>() == all);
  }
  set_num_threads(before);
  for (const std::int64_t r : {0, 5, 36}) {
    const auto first = all.begin() + r * (n + 2);
    CHECK(forward(x.narrow(0, r, 1).contiguous()).to_vector<float>() == std::vector<float>(first, first + n + 2));
  }
}

TEST_CASE("the forward transform and its adjoint are adjoint") {
  for (const std::int64_t n : {2, 22, 600, 1018, 2048}) {
    const Tensor x = random_f64({5, n}), y = random_f64({5, n / 2 + 1, 2}, 3);
    const std::vector<double> a = x.to_vector<double>(), b = adjoint(y).to_vector<double>();
    const std::vector<double> c = forward(x).to_vector<double>(), d = y.to_vector<double>();
    double left = 0, right = 0, scale = 0;
    for (std::size_t i = 0; i < a.size(); ++i) left += a[i] * b[i], scale += std::abs(a[i] * b[i]);
    for (std::size_t i = 0; i < c.size(); ++i) right += c[i] * d[i];
    CHECK(std::abs(left - right) <= kDoubleRounding * scale);
  }
}

TEST_CASE("no rows, and dtypes that are refused") {
  CHECK(forward(Tensor::zeros({0, 8})).numel() == 0);
  CHECK(adjoint(Tensor::zeros({0, 5, 2})).numel() == 0);
  CHECK(error_of<DTypeError>([] {
          return forward(Tensor::zeros({1, 8}, {.dtype = DType::f16}));
        }) == "rfft: expected f32 or f64, got f16");
  CHECK(error_of<DTypeError>([] {
          return adjoint(Tensor::zeros({1, 5, 2}, {.dtype = DType::i64}));
        }) == "rfft_adjoint: expected f32 or f64, got i64");
}
