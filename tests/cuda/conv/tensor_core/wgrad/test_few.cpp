#include "cuda/conv/tensor_core/wgrad/few.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// Sums of one product, of few products, and of few products only at the taps that mostly meet padding.
std::vector<ConvProblem> problems() {
  return {sized({.N = 1, .C_in = 8, .C_out = 17, .L_in = 1, .K = 8, .S = 4, .P_l = 1, .P_r = 1, .OP = 3, .D = 5}),
          sized({.N = 1, .C_in = 32, .C_out = 8, .L_in = 1, .K = 7, .S = 2, .D = 2}),
          sized({.N = 1, .C_in = 128, .C_out = 64, .L_in = 1, .K = 3, .S = 2, .P_l = 1, .P_r = 0, .G = 4}),
          sized({.N = 3, .C_in = 40, .C_out = 24, .L_in = 2, .K = 5, .P_l = 2, .P_r = 2}),
          sized({.N = 1, .C_in = 48, .C_out = 40, .L_in = 60, .K = 3, .P_l = 58, .P_r = 58, .D = 58}),
          sized({.N = 2, .C_in = 24, .C_out = 33, .L_in = 16, .K = 31, .S = 1, .P_l = 15, .P_r = 15})};
}

/// A number as the two f16 of tensor_core.
struct Halves {
  double high, low;
  explicit Halves(float value)
      : high(static_cast<double>(static_cast<float>(Half(value)))),
        low(static_cast<double>(static_cast<float>(Half((value - static_cast<float>(Half(value))) * 2048.0F))) / 2048) {}
};

/// The largest errors of `count` sums of `terms` products over their sums of magnitudes: with two f16, and in plain f32.
struct Worst {
  double halves = 0, plain = 0;
};
Worst worst_of(std::int64_t terms, std::int64_t count) {
  const Tensor numbers = (random_f64({2, count * terms}, 7)).to(DType::f32);
  const float* x = numbers.data<float>();
  const float* y = x + count * terms;
  Worst worst;
  for (std::int64_t i = 0; i < count; ++i) {
    double exact = 0, magnitude = 0, halves = 0;
    float plain = 0;
    for (std::int64_t j = i * terms; j < (i + 1) * terms; ++j) {
      const double product = static_cast<double>(x[j]) * static_cast<double>(y[j]);
      const Halves a(x[j] * 256), b(y[j] * 256);
      exact += product;
      magnitude += std::abs(product);
      halves += (a.high * b.high + a.high * b.low + a.low * b.high) / 65536;
      plain = std::fma(x[j], y[j], plain);
    }
    worst.halves = worse(worst.halves, relative(static_cast<double>(static_cast<float>(halves)) - exact, magnitude));
    worst.plain = worse(worst.plain, relative(static_cast<double>(plain) - exact, magnitude));
  }
  return worst;
}

}  // namespace

TEST_CASE("terms are those that the definition has") {
  for (const ConvProblem& p : random_wgrads(5, 60))
    for (std::int64_t k = 0; k < p.K; ++k) {
      std::int64_t terms = 0;
      for (std::int64_t i = 0; i < p.L_in; ++i) {
        const std::int64_t t = p.S * i + k * p.D - p.P_l;
        terms += t >= 0 && t < p.L_out ? p.N : 0;
      }
      CHECK_MESSAGE(tensor_core::terms_of_tap(p, k) == terms, p, " tap ", k);
    }
  using tensor_core::FewTerms;
  const std::vector<ConvProblem> few = problems();
  for (std::size_t i = 0; i < few.size(); ++i) {
    CHECK(tensor_core::few_terms(few[i], Precision::fp32) == (i < 4 ? FewTerms::all : FewTerms::some));
    CHECK(tensor_core::few_terms(few[i], Precision::tf32) == FewTerms::none);
  }
  CHECK(tensor_core::few_terms(sized({.N = 1, .C_in = 8, .C_out = 8, .L_in = 9, .K = 3, .P_l = 1, .P_r = 1}),
                               Precision::fp32) == FewTerms::none);
}

TEST_CASE("two f16 exceed the bound of fp32 in sums of one product, and not in those of kLeastTerms") {
  constexpr double kRounding = 0x1p-24;
  const Worst one = worst_of(1, 400'000), least = worst_of(tensor_core::kLeastTerms, 400'000);
  CHECK(one.halves > kErrorOverPlain * one.plain + 4 * kRounding);
  CHECK(one.halves <= 8.5 * kRounding);
  CHECK(least.halves <= kErrorOverPlain * least.plain);
}

TEST_CASE("fp32's weight gradient is as accurate as plain f32 sums, of however few products") {
  if (cuda::device_count() == 0 || cuda::properties(0).arch() < 80) SKIP_TEST("no GPU of compute capability 8.0 or later");
  for (const ConvProblem& p : problems()) {
    const ConvArrays<float> arrays(p, kNormal);
    bool intact = false;
    const Array<float> got = run_on_gpu(arrays, ConvDirection::wgrad, by_algorithm(Algorithm::tensor_core), intact);
    CHECK(intact);
    check_as_accurate_as_plain(got, arrays, ConvDirection::wgrad, p);
    const ConvArrays<float> integers(p, kSmallIntegers);
    CHECK_MESSAGE(same_bits(run_on_gpu(integers, ConvDirection::wgrad, by_algorithm(Algorithm::tensor_core), intact),
                            integers.run(ConvDirection::wgrad, Algorithm::reference)),
                  p);
  }
}
