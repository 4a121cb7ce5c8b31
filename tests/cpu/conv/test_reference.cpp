#include "cpu/conv/reference.hpp"

#include <doctest/doctest.h>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("by hand: stride 2, kernel 3, one channel") {
  const ConvProblem p = sized({.L_in = 2, .K = 3, .S = 2, .P_l = 1});
  REQUIRE(p.L_out == 4);
  const float x[] = {1, 10}, w[] = {1, 2, 3}, bias[] = {100};
  float y[4];
  cpu::reference_forward(p, x, w, bias, y);  // before padding removes the first: 1 2 3+10 20 30
  CHECK(y[0] == 102);
  CHECK(y[1] == 113);
  CHECK(y[2] == 120);
  CHECK(y[3] == 130);
  const float dy[] = {1, 2, 3, 4};
  float dx[2], dw[3];
  cpu::reference_dgrad(p, dy, w, nullptr, dx);  // w against dy[-1..1] and dy[1..3]
  CHECK(dx[0] == 1 * 2 + 2 * 3);
  CHECK(dx[1] == 2 * 1 + 3 * 2 + 4 * 3);
  cpu::reference_wgrad(p, x, dy, dw);  // dw[k] = x[0]*dy[k-1] + x[1]*dy[k+1]
  CHECK(dw[0] == 20);
  CHECK(dw[1] == 1 + 30);
  CHECK(dw[2] == 2 + 40);
}

TEST_CASE("by hand: two groups, two outputs each, dilation") {
  const ConvProblem p = sized({.C_in = 2, .C_out = 4, .L_in = 1, .K = 2, .D = 3, .G = 2});
  REQUIRE(p.L_out == 4);
  const double x[] = {1, 2}, w[] = {1, 2, 3, 4, 5, 6, 7, 8};  // (2, 2, 2)
  double y[16];
  ConvProblem q = p;
  q.dtype = DType::f64;
  cpu::reference_forward(q, x, w, nullptr, y);
  const double expected[] = {1, 0, 0, 2, 3, 0, 0, 4, 10, 0, 0, 12, 14, 0, 0, 16};
  for (int i = 0; i < 16; ++i) CHECK(y[i] == expected[i]);
}

TEST_CASE("against the formula, product by product") {
  const ConvProblem problems[] = {
      sized({.N = 2, .C_in = 6, .C_out = 4, .L_in = 9, .K = 5, .S = 3, .P_l = 2, .P_r = 4, .OP = 2, .D = 2, .G = 2}),
      sized({.N = 1, .C_in = 3, .C_out = 2, .L_in = 7, .K = 2, .S = 5, .P_l = 1, .P_r = 0, .OP = 4}),
      sized({.N = 3, .C_in = 1, .C_out = 1, .L_in = 1, .K = 1})};
  for (const ConvProblem& problem : problems) {
    for (const ConvDirection direction : kDirections) {
      const ConvArrays<double> wide(problem, kSmallIntegers);
      const ConvArrays<Half> narrow(problem, kSmallIntegers);
      const std::vector<double> expected = wide.formula<double>(direction);
      const Array<double> got = wide.run(direction, Algorithm::reference);
      const Array<Half> half = narrow.run(direction, Algorithm::reference);
      REQUIRE(got.size() == static_cast<std::int64_t>(expected.size()));
      CHECK(got.norm() > 0);
      for (std::int64_t i = 0; i < got.size(); ++i) {
        CHECK(got[i] == expected[static_cast<std::size_t>(i)]);
        CHECK(static_cast<float>(half[i]) == expected[static_cast<std::size_t>(i)]);
      }
    }
  }
}
