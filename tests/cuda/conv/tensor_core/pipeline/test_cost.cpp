#include "cuda/conv/tensor_core/pipeline/cost.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::cuda::tensor_core;

TEST_CASE("the longest of overlapping times counts, and times without overlap are added") {
  cuda::DeviceProperties gpu;
  gpu.sm_count = 132;
  const CostRates rates{.multiply = 2,
                        .convert = 3,
                        .gather = 1,
                        .store = 5,
                        .spread = 2,
                        .tile = 170,
                        .read = 0.5,
                        .read_again = 0.25,
                        .terabytes = 2,
                        .microseconds = 7};
  const auto near = [](double value, double expected) { return std::abs(value - expected) < 1e-9 * expected; };
  CHECK(near(cost_seconds({}, rates, gpu), 7e-6));
  CHECK(near(cost_seconds({.multiply = 1.7e6}, rates, gpu), 2e-3 + 7e-6));
  CHECK(near(cost_seconds({.convert = 1.7e6}, rates, gpu), 3e-3 + 7e-6));
  CHECK(near(cost_seconds({.convert = 1.7e6, .gathers = true}, rates, gpu), 4e-3 + 7e-6));
  CHECK(near(cost_seconds({.store = 1.7e6}, rates, gpu), 5e-3 + 7e-6));
  CHECK(near(cost_seconds({.store = 1.7e6, .spreads = true}, rates, gpu), 7e-3 + 7e-6));
  CHECK(near(cost_seconds({.tiles = 10}, rates, gpu), 8e-6));
  CHECK(near(cost_seconds({.read = 4e9, .written = 2e9}, rates, gpu), 2e-3 + 7e-6));
  CHECK(near(cost_seconds({.column_tiles = 3, .read = 4e9, .written = 2e9}, rates, gpu), 3e-3 + 7e-6));
  CHECK(near(cost_seconds({.multiply = 1.7e6, .written = 4e9}, rates, gpu), std::cbrt(2 * 8e-9) + 7e-6));
  gpu.sm_count = 66;
  CHECK(near(cost_seconds({.written = 2e9}, rates, gpu), 2e-3 + 7e-6));
}

TEST_CASE("operands and products of a kind of numbers") {
  ConvProblem p = sized({.N = 1, .C_in = 16, .C_out = 16, .L_in = 90, .K = 3, .S = 2});
  CHECK(parts_of({p, ConvDirection::forward, Precision::fp32}) == 2);
  CHECK(parts_of({p, ConvDirection::forward, Precision::tf32}) == 1);
  const cuda::TapGemm gemm = cuda::make_tap_gemm(p, ConvDirection::forward);
  CHECK(!has_gaps({p, ConvDirection::forward, Precision::fp32}, gemm));
  CHECK(has_gaps({p, ConvDirection::forward, Precision::tf32}, gemm));  // three taps of two phases
  p.dtype = DType::bf16;
  CHECK(parts_of({p, ConvDirection::forward, Precision::fp32}) == 1);
  CHECK(has_gaps({p, ConvDirection::forward, Precision::fp32}, gemm));
  CHECK(products_of(2) == 3);
  CHECK(products_of(1) == 1);
}
