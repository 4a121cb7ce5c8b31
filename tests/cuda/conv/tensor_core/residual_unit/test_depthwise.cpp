// Residual units of 16 bits whose first convolution is depthwise.

#include "cuda/conv/tensor_core/residual_unit/depthwise.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "unit_operands.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr std::array kDtypes{DType::f16, DType::bf16};

ResidualUnit unit_of(DType dtype, std::int64_t N, std::int64_t C, std::int64_t L, std::int64_t K, std::int64_t D) {
  return {.N = N, .C = C, .L = L, .K = {K, 1}, .D = {D, 1}, .is_depthwise = true, .is_snake = true, .dtype = dtype};
}

}  // namespace

TEST_CASE("depthwise residual unit of 16 bits: sums of small integers are exact") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, K, D, L, N;
  };
  const std::vector<Case> cases{{64, 7, 1, 8, 140},    {64, 7, 3, 248, 140},  {64, 7, 9, 3000, 30},
                                {64, 3, 5, 256, 20},   {64, 1, 1, 512, 20},   {128, 7, 1, 8, 140},
                                {128, 7, 3, 744, 140}, {128, 7, 9, 3000, 30}, {128, 5, 5, 192, 20}};
  for (const DType dtype : kDtypes)
    for (const Case& c : thinned(cases)) {
      CAPTURE(dtype);
      CAPTURE(c.C);
      CAPTURE(c.K);
      CAPTURE(c.D);
      CAPTURE(c.L);
      check_exact(unit_of(dtype, c.N, c.C, c.L, c.K, c.D));
    }
}

TEST_CASE("depthwise residual unit of 16 bits: random numbers are as near to f64 as the steps, with the same bits every time") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const DType dtype : kDtypes)
    for (const std::int64_t C : {64, 128})
      for (const double largest : {1.0, 200.0}) {  // of x: beyond 64 the standard library's sine is used
        const ResidualUnit unit = unit_of(dtype, is_reduced() ? 1 : 6, C, 2048, 7, 9);
        UnitOperands operands = random_operands(unit);
        operands.x = operands.x * largest;
        CAPTURE(dtype);
        CAPTURE(C);
        CAPTURE(largest);
        const Tensor y = computed(unit, operands), exact = in_steps(unit, operands, DType::f64);
        REQUIRE(y.defined());
        CHECK(max_difference(y, exact) <= 1.5 * max_difference(in_steps(unit, operands, dtype), exact));
        const std::vector<double> first = f64_values(y);
        for (int run = 0; run < (is_reduced() ? 1 : 10); ++run) CHECK(f64_values(computed(unit, operands)) == first);
      }
}

TEST_CASE("depthwise residual unit of 16 bits: Snake with beta zero is NaN or infinite, as in steps") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const std::int64_t C : {64, 128}) {
    const ResidualUnit unit = unit_of(DType::f16, 2, C, 512, 7, 1);
    check_beta_zero(unit, random_operands(unit));
  }
}

TEST_CASE("depthwise residual unit of 16 bits: NaN and infinity reach what reads them, and nothing else") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const ResidualUnit unit = unit_of(DType::bf16, 40, 64, 1000, 7, 9);
  const UnitOperands operands = random_operands(unit);
  const std::vector<double> clean = f64_values(computed(unit, operands));
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<double> x = operands.x.to_vector<double>();
    const std::int64_t at = 250;  // of sample 7, near the edge of two blocks
    x[static_cast<std::size_t>((7 * 64 + 3) * 1000 + at)] = bad;
    UnitOperands spoilt = operands;
    spoilt.x = Tensor::from_vector(x, operands.x.shape());
    const std::vector<double> y = f64_values(computed(unit, spoilt));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto l = static_cast<std::int64_t>(i % 1000), sample = static_cast<std::int64_t>(i / 1000 / 64);
      const std::int64_t distance = std::abs(l - at);
      const bool is_reached = sample == 7 && distance <= 27 && distance % 9 == 0;
      if (is_reached ? std::isfinite(y[i]) : y[i] != clean[i]) {
        FAIL_CHECK(bad, " in sample ", sample, ", position ", l, ": ", y[i], " instead of ", clean[i]);
        break;
      }
    }
  }
}
