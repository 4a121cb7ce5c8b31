#include "cpu/conv/conv.hpp"

#include <doctest/doctest.h>

#include "support/conv.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("the choice is a function of the problem") {
  const ConvProblem dense = sized({.C_in = 8, .C_out = 8, .L_in = 10, .K = 3});
  const ConvProblem depthwise = sized({.C_in = 8, .C_out = 16, .L_in = 10, .K = 3, .G = 8});
  const ConvProblem huge = {.C_in = 1 << 23, .C_out = 1, .K = 2};
  for (const ConvDirection direction : kDirections) {
    CHECK(cpu::choose(dense, direction) == Algorithm::gemm);
    CHECK(cpu::choose(depthwise, direction) == Algorithm::depthwise);
    CHECK(cpu::choose(huge, direction) == Algorithm::reference);
    CHECK(!cpu::can_implement(huge, direction, Algorithm::automatic));
    CHECK(cpu::can_implement(dense, direction, Algorithm::tensor_core) == "it is a CUDA kernel");
  }
}

TEST_CASE("a stride far beyond the rows takes no memory of its own") {
  for (const std::int64_t G : {1, 2}) {
    const ConvProblem steep = sized({.C_in = 2, .C_out = 4, .L_in = 1, .K = 3, .S = 1 << 30, .G = G});
    CHECK(cpu::choose(steep, ConvDirection::forward) == Algorithm::reference);
    const ConvArrays<float> arrays(steep, kSmallIntegers);
    for (const ConvDirection direction : kDirections)
      CHECK(same_bits(arrays.run(direction, Algorithm::automatic), arrays.run(direction, Algorithm::reference)));
  }
}

TEST_CASE("automatic gives the bits of the chosen algorithm; every algorithm can compute depthwise problems") {
  const ConvArrays<float> arrays(sized({.N = 2, .C_in = 4, .C_out = 8, .L_in = 50, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .G = 4}),
                                 kNormal);
  const ConvArrays<float> integers(arrays.p, kSmallIntegers);
  for (const ConvDirection direction : kDirections) {
    CHECK(same_bits(arrays.run(direction, Algorithm::automatic), arrays.run(direction, Algorithm::depthwise)));
    CHECK(same_bits(integers.run(direction, Algorithm::gemm), integers.run(direction, Algorithm::depthwise)));
  }
}

TEST_CASE("refusals, by text") {
  ConvProblem p = sized({.C_in = 2, .C_out = 2, .L_in = 3, .K = 1});
  float data[6] = {};
  CHECK_THROWS_WITH_AS(
      cpu::conv_forward(p, data, data, nullptr, data, Algorithm::depthwise),
      "convolution forward: algorithm 'depthwise' cannot do N=1 C_in=2 C_out=2 L_in=3 L_out=3 K=1 S=1 P_l=0 P_r=0 OP=0 "
      "D=1 G=1 f32 on the CPU: needs G == C_in > 1, got G=1 C_in=2; 'automatic' can",
      NotImplemented);
  CHECK_THROWS_AS(cpu::conv_wgrad(p, data, data, data, Algorithm::direct), NotImplemented);
  p.dtype = DType::i64;
  CHECK_THROWS_WITH_AS(cpu::conv_dgrad(p, data, data, nullptr, data, Algorithm::automatic),
                       "convolution dgrad: expected a floating-point dtype, got i64", DTypeError);
}
