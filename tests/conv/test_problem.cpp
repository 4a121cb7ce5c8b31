#include "conv/problem.hpp"

#include <doctest/doctest.h>

#include "tensor/error.hpp"

using namespace polyphase;

TEST_CASE("length") {
  CHECK(conv_transpose1d_length(256, 16, 8, 4, 4, 0, 1) == 2048);
  CHECK(conv_transpose1d_length(131072, 3, 2, 1, 1, 0, 2) == 262145);
  CHECK(conv_transpose1d_length(1024, 25, 4, 11, 11, 1, 1) == 4096);
  CHECK(conv_transpose1d_length(1, 1, 1, 3, 3, 0, 1) == -5);
  CHECK(conv_transpose1d_length(1'000'000'000, 4, 8, 0, 0, 0, 1) == 7'999'999'996);
}

TEST_CASE("operations count a multiply-add as two") {
  const ConvProblem p = {.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3};
  CHECK(p.operations() == doctest::Approx(412.3e9).epsilon(1e-3));
  const ConvProblem grouped = {.N = 2, .C_in = 8, .C_out = 16, .L_in = 10, .K = 3, .G = 4};
  CHECK(grouped.operations() == 2 * 2 * 8 * 4 * 3 * 10);
}

TEST_CASE("depthwise means one input channel per group, and more than one group") {
  CHECK(ConvProblem{.C_in = 8, .C_out = 16, .G = 8}.is_depthwise());
  CHECK(!ConvProblem{.C_in = 8, .C_out = 8, .G = 4}.is_depthwise());
  CHECK(!ConvProblem{.C_in = 1, .C_out = 8, .G = 1}.is_depthwise());
}

TEST_CASE("printing shows every field") {
  const ConvProblem p = {
      .N = 1, .C_in = 2, .C_out = 3, .L_in = 4, .L_out = 5, .K = 6, .S = 7, .P_l = 8, .P_r = 9, .OP = 10, .D = 11, .G = 12};
  CHECK(concat(p) == "N=1 C_in=2 C_out=3 L_in=4 L_out=5 K=6 S=7 P_l=8 P_r=9 OP=10 D=11 G=12 f32");
  CHECK(concat(ConvDirection::forward, ' ', ConvDirection::dgrad, ' ', ConvDirection::wgrad) == "forward dgrad wgrad");
  CHECK(ConvProblem{} == ConvProblem{});
  CHECK(!(ConvProblem{.P_r = 1} == ConvProblem{}));
}
