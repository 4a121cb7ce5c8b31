#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "by_tile_problems.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
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

bool runs_by_tile() {
  return cuda::device_count() > 0 && !tensor_core::uses_mma(cuda::properties(0).arch()) && !tensor_core::uses_wide();
}

/// array[n, c, i] *= 2^exponent(n, c, i), where `length` numbers of `channels` channels are a sample.
template <class Exponent>
void scale(Array<float>& array, std::int64_t channels, std::int64_t length, const Exponent& exponent) {
  for (std::int64_t i = 0; i < array.size(); ++i)
    array[i] = std::ldexp(array[i], exponent(i / length / channels, i / length % channels, i % length));
}

template <class Exponent>
void scale_sources(ConvArrays<float>& arrays, const Exponent& exponent) {
  scale(arrays.x, arrays.p.C_in, arrays.p.L_in, exponent);
  scale(arrays.y, arrays.p.C_out, arrays.p.L_out, exponent);
}

/// Bit for bit in both directions and precisions, and all sums are computed by the by_tile kernel if `all`.
void check_exact(const ConvArrays<float>& arrays, bool all) {
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const Array<float> expected = arrays.run(direction, Algorithm::reference, false);
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      bool intact = false;
      const std::uint64_t before = cuda::computed_again();
      const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core, precision), intact, false);
      const auto again = static_cast<std::int64_t>(cuda::computed_again() - before);
      CHECK_MESSAGE(intact, arrays.p);
      CHECK_MESSAGE(same_bits(got, expected), arrays.p, ' ', direction, ' ', precision);
      if (all) CHECK_MESSAGE(again >= expected.size() / 2, arrays.p, ' ', direction, ' ', precision, ' ', again);
    }
  }
}

}  // namespace

TEST_CASE("by_tile: samples of other magnitudes lose no bit") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (!runs_by_tile()) SKIP_TEST("no wgmma, or the wide kernel is asked for");
  for (const ConvProblem& p : thinned(by_tile_problems())) {
    for (const int exponent : {-24, -126}) {
      ConvArrays<float> arrays(p, kSmallIntegers);
      scale_sources(arrays, [&](std::int64_t n, std::int64_t, std::int64_t) { return n == 1 ? exponent : 0; });
      check_exact(arrays, true);
    }
  }
}

TEST_CASE("by_tile: channels of other magnitudes lose no bit, nor do subnormal numbers") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (!runs_by_tile()) SKIP_TEST("no wgmma, or the wide kernel is asked for");
  for (const ConvProblem& p : thinned(by_tile_problems())) {
    ConvArrays<float> arrays(p, kSmallIntegers);  // weights of other output channels are 2^-17 to 2^-85 times as large
    const auto out = p.C_out / p.G;
    for (std::int64_t i = 0; i < arrays.w.size(); ++i)
      arrays.w[i] = std::ldexp(arrays.w[i], -17 * static_cast<int>(i / p.K % out % 6));
    const Array<float> expected = arrays.run(ConvDirection::forward, Algorithm::reference, false);
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      bool intact = false;
      const auto call = by_algorithm(Algorithm::tensor_core, precision);
      CHECK_MESSAGE(same_bits(run_on_gpu(arrays, ConvDirection::forward, call, intact, false), expected), p, ' ', precision);
    }
    ConvArrays<float> subnormal(p, kSmallIntegers);
    scale_sources(subnormal, [](std::int64_t, std::int64_t, std::int64_t) { return -140; });
    check_exact(subnormal, false);
  }
}

TEST_CASE("by_tile: quiet parts of rows are as accurate as plain sums, with the same bits from run to run") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (!runs_by_tile()) SKIP_TEST("no wgmma, or the wide kernel is asked for");
  int exponent = -100;
  for (const ConvProblem& p : thinned(by_tile_problems())) {
    exponent = exponent == -17 ? -100 : -17;
    ConvArrays<float> arrays(p, kNormal);
    scale_sources(arrays, [&](std::int64_t, std::int64_t, std::int64_t i) { return i / 150 % 2 == 1 ? exponent : 0; });
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      bool intact = false;
      const auto call = by_algorithm(Algorithm::tensor_core);
      const Array<float> got = run_on_gpu(arrays, direction, call, intact);
      CHECK_MESSAGE(intact, p);
      check_as_accurate_as_plain(got, arrays, direction, concat(p, ' ', direction, ' ', exponent));
      for (int run = 0; run < 2; ++run)
        CHECK_MESSAGE(same_bits(run_on_gpu(arrays, direction, call, intact), got), p, ' ', direction);
    }
  }
}

TEST_CASE("by_tile: an infinity and a NaN reach the outputs of their taps and no other") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (!runs_by_tile()) SKIP_TEST("no wgmma, or the wide kernel is asked for");
  for (const ConvProblem& p : thinned(by_tile_problems())) {
    ConvArrays<float> arrays(p, kSmallIntegers);
    scale_sources(arrays, [](std::int64_t n, std::int64_t, std::int64_t) { return n == 1 ? -30 : 0; });
    make_unusual(arrays, arrays.x.size() / 2);
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      if (p.S > p.K && direction == ConvDirection::dgrad) continue;  // element 777 of y meets no tap
      bool intact = false;
      const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact, false);
      check_unusual(got, arrays.run(direction, Algorithm::reference, false), concat(p, " ", direction));
    }
  }
}
