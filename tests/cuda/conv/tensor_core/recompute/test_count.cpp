#include "cuda/conv/tensor_core/recompute/count.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/cuda_conv.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// How many sums a run of one direction on the tensor cores has recomputed.
std::uint64_t again(const ConvArrays<float>& arrays, ConvDirection direction, Precision precision = Precision::fp32) {
  const std::uint64_t before = cuda::computed_again();
  bool intact = false;
  (void)run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core, precision), intact);
  CHECK(intact);
  return cuda::computed_again() - before;
}

/// One problem for each kernel of f32: few channels, rows, weights that fit shared memory and that do not, strides, phases with
/// fewer taps.
std::vector<ConvProblem> problems() {
  return {sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 2048, .K = 5, .D = 3}),
          sized({.N = 1, .C_in = 128, .C_out = 128, .L_in = 2048, .K = 3}),
          sized({.N = 1, .C_in = 64, .C_out = 32, .L_in = 2048, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
          sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 2048, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2}),
          sized({.N = 1, .C_in = 256, .C_out = 128, .L_in = 512, .K = 16, .S = 8, .P_l = 4, .P_r = 4}),
          sized({.N = 1, .C_in = 256, .C_out = 128, .L_in = 512, .K = 25, .S = 4, .P_l = 11, .P_r = 11, .OP = 1})};
}

}  // namespace

TEST_CASE("numbers of one size keep their sums, numbers that have no operand cost those that they reach") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (cuda::properties(0).arch() < 80) SKIP_TEST("no tensor cores");
  for (const ConvProblem& p : problems()) {
    ConvArrays<float> arrays(p, kSmallIntegers);
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      CHECK_MESSAGE(again(arrays, ConvDirection::forward, precision) == 0, p);
      CHECK_MESSAGE(again(arrays, ConvDirection::dgrad, precision) == 0, p);
      CHECK_MESSAGE(again(arrays, ConvDirection::wgrad, precision) == 0, p);
    }
    arrays.x[p.L_in / 2] = std::numeric_limits<float>::infinity();
    CHECK_MESSAGE(again(arrays, ConvDirection::forward) >= static_cast<std::uint64_t>(p.K * p.C_out), p);
    CHECK_MESSAGE(again(arrays, ConvDirection::wgrad) >= static_cast<std::uint64_t>(p.C_out), p);
  }
}

TEST_CASE("it cannot be asked for while work is recorded") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  CHECK_THROWS_AS((void)cuda::capture([] { (void)cuda::computed_again(); }), DeviceError);
}
