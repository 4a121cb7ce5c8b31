#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/conv/tensor_core/recompute/wide_blocks.cuh"
#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/cuda_conv.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// One problem for each kernel of f32, with groups, classes that have fewer taps, and outputs that do not fill a block.
std::vector<ConvProblem> problems() {
  return {sized({.N = 2, .C_in = 32, .C_out = 72, .L_in = 900, .K = 5, .P_l = 2, .D = 3}),
          sized({.N = 1, .C_in = 128, .C_out = 128, .L_in = 1024, .K = 3}),
          sized({.N = 2, .C_in = 64, .C_out = 32, .L_in = 700, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
          sized({.N = 1, .C_in = 80, .C_out = 144, .L_in = 301, .K = 5, .S = 3, .P_l = 2, .P_r = 1, .G = 2}),
          sized({.N = 1, .C_in = 256, .C_out = 136, .L_in = 200, .K = 16, .S = 8, .P_l = 4, .P_r = 4}),
          sized({.N = 1, .C_in = 64, .C_out = 40, .L_in = 300, .K = 25, .S = 4, .P_l = 11, .P_r = 11, .OP = 1})};
}

/// Makes every `step`-th number tiny and the others zero. The last is 1 and sets the scale of the whole tensor.
void make_tiny(Array<float>& array, std::int64_t step) {
  for (std::int64_t i = 0; i < array.size(); ++i) array[i] = i % step == 0 ? std::ldexp(array[i], -70) : 0.0F;
  array[array.size() - 1] = 1.0F;
}

/// Compares forward and dgrad with the reference bit for bit and returns how many sums were recomputed.
std::uint64_t check_exact(const ConvArrays<float>& arrays, Precision precision) {
  const std::uint64_t before = cuda::computed_again();
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    bool intact = false;
    const auto call = by_algorithm(Algorithm::tensor_core, precision);
    const Array<float> got = run_on_gpu(arrays, direction, call, intact, false);
    CHECK_MESSAGE(intact, arrays.p);
    CHECK_MESSAGE(same_bits(got, arrays.run(direction, Algorithm::reference, false)), arrays.p, ' ', direction, ' ', precision);
  }
  return cuda::computed_again() - before;
}

}  // namespace

TEST_CASE("blocks of tiny numbers lose no bit, and neither do single ones") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (cuda::properties(0).arch() < 80) SKIP_TEST("no tensor cores");
  for (const ConvProblem& p : problems()) {
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      for (const std::int64_t step : {1, 997}) {
        ConvArrays<float> arrays(p, kSmallIntegers);
        make_tiny(arrays.x, step);
        make_tiny(arrays.y, step);
        const std::uint64_t again = check_exact(arrays, precision);
        CHECK_MESSAGE(again > 0, p, ' ', precision, ' ', step);
        if (step == 1) CHECK_MESSAGE(again > tensor_core::kWideColumns * tensor_core::kWidePositions / 4, p, ' ', precision);
      }
    }
  }
}

TEST_CASE("an infinity and a NaN among tiny numbers reach the outputs of their taps and no other") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (cuda::properties(0).arch() < 80) SKIP_TEST("no tensor cores");
  for (const ConvProblem& p : problems()) {
    ConvArrays<float> arrays(p, kSmallIntegers);
    make_tiny(arrays.x, 1);
    make_tiny(arrays.y, 1);
    make_unusual(arrays, arrays.x.size() / 2);
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      bool intact = false;
      const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact, false);
      check_unusual(got, arrays.run(direction, Algorithm::reference, false), concat(p, " ", direction));
    }
  }
}

TEST_CASE("magnitudes over 160 powers of two: as accurate as plain sums, and the same bits from run to run") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (cuda::properties(0).arch() < 80) SKIP_TEST("no tensor cores");
  for (const ConvProblem& p : problems()) {
    ConvArrays<float> arrays(p, kNormal);
    for (std::int64_t i = 0; i < arrays.x.size(); ++i)
      arrays.x[i] = std::ldexp(arrays.x[i], static_cast<int>(i * 37 % 160) - 80);
    bool intact = false;
    const auto call = by_algorithm(Algorithm::tensor_core);
    const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, call, intact);
    check_as_accurate_as_plain(got, arrays, ConvDirection::forward, p);
    CHECK_MESSAGE(same_bits(run_on_gpu(arrays, ConvDirection::forward, call, intact), got), p);
  }
}
