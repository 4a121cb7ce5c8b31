#include "cuda/conv/sm90/tensor_core_units.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core_forms.hpp"
#include "cuda/conv/sm90/tensor_core_units_steps.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using cuda::tensor_core::GatherForm;
namespace tensor_core = cuda::tensor_core;

namespace {

constexpr int kSharedOfHopper = 227 * 1024;

/// K = 2*S, padded so that outputs begin and end with half of a unit's taps.
ConvProblem doubled(std::int64_t N, std::int64_t C_in, std::int64_t C_out, std::int64_t L_in, std::int64_t S,
                    std::int64_t G = 1, std::int64_t P_r = 0) {
  return sized(
      {.N = N, .C_in = C_in, .C_out = C_out, .L_in = L_in, .K = 2 * S, .S = S, .P_l = S / 2, .P_r = S / 2 + P_r, .G = G});
}
/// As WaveGAN's.
ConvProblem long_kernel(std::int64_t N, std::int64_t C_in, std::int64_t C_out, std::int64_t L_in, std::int64_t P = 11,
                        std::int64_t G = 1) {
  return sized({.N = N, .C_in = C_in, .C_out = C_out, .L_in = L_in, .K = 25, .S = 4, .P_l = P, .P_r = P, .OP = 1, .G = G});
}

/// Channels and units around the tiles, groups, several paddings, an odd and an even number of tiles.
std::vector<ConvProblem> units_problems() {
  return {doubled(1, 32, 32, 128, 8),     doubled(3, 64, 33, 136, 8),  doubled(2, 96, 70, 40, 8, 1, 8),
          doubled(1, 64, 64, 256, 4),     doubled(3, 32, 130, 264, 4), doubled(2, 192, 80, 72, 4, 2, 16),
          long_kernel(2, 64, 64, 128),    long_kernel(3, 32, 72, 152), long_kernel(1, 128, 96, 72, 3, 2),
          doubled(1, 256, 24, 1024, 8, 2)};
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

constexpr auto kByUnits = [](const GpuCall& call) {
  tensor_core::units_gather(call.problem, call.first, call.second, call.bias, call.out, {}, 0, call.stream);
};

template <class E>
double check_bits(ConvProblem p) {
  p.dtype = dtype_of<E>;
  CHECK(tensor_core::units_steps(p, cuda::properties(0)).count != 0);
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const Array<E> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
  bool intact = false;
  const Array<E> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact);
  CHECK_MESSAGE(same_bits(got, expected), p);
  CHECK_MESSAGE(intact, p, ": wrote outside its output");
  return expected.norm();
}

tensor_core::UnitSteps steps_of(ConvProblem p) {
  p.dtype = DType::bf16;
  return tensor_core::make_unit_steps(p, 132, kSharedOfHopper);
}

}  // namespace

TEST_CASE("steps fit shared memory, cover the reduction, the channels and every output") {
  for (const ConvProblem& p : units_problems()) {
    const tensor_core::UnitSteps steps = steps_of(p);
    REQUIRE(steps.count > 0);
    CHECK(steps.shared_bytes <= kSharedOfHopper);
    CHECK(steps.stages >= 3);
    CHECK(steps.count * tensor_core::kUnitRows == p.C_in / p.G);
    CHECK(steps.column_tiles * steps.channels >= p.C_out);
    CHECK(steps.tiles * tensor_core::kUnitPositions * p.S >= p.N * p.L_out);
    CHECK(steps.turns == steps.tiles * steps.column_tiles);
    // What the first and the last unit of a tile need lies in the box that it reads.
    const tensor_core::UnitPattern& pattern = tensor_core::kUnitPatterns[steps.pattern];
    CHECK(steps.first % 8 == 0);
    CHECK(steps.lead % 2 == 1);
    CHECK(steps.lead + tensor_core::kUnitPositions + pattern.shifts() - 1 <= tensor_core::kUnitWidth);
  }
}

TEST_CASE("products have as many columns as the classes have taps") {
  for (const ConvProblem& p : units_problems()) {
    const tensor_core::UnitSteps steps = steps_of(p);
    CHECK(tensor_core::kUnitPatterns[steps.pattern].columns() == steps.channels * p.K);
  }
}

TEST_CASE("other strides, kernels, dilations, paddings, rows and types are declined") {
  const ConvProblem p = doubled(1, 64, 64, 256, 8);
  const auto takes = [](const ConvProblem& problem) { return steps_of(problem).count != 0; };
  CHECK(takes(p));
  const auto with = [&](auto change) {
    ConvProblem other = p;
    change(other);
    return sized(other);
  };
  CHECK(!takes(with([](ConvProblem& o) { o.S = 2; })));
  CHECK(!takes(with([](ConvProblem& o) { o.K = 15; })));
  CHECK(!takes(with([](ConvProblem& o) { o.D = 3; })));
  CHECK(!takes(with([](ConvProblem& o) { o.P_l = 3; })));
  CHECK(!takes(with([](ConvProblem& o) { o.L_in = 257; })));
  CHECK(!takes(with([](ConvProblem& o) { o.P_r = 5; })));
  CHECK(!takes(with([](ConvProblem& o) { o.C_in = 48; })));
  ConvProblem single = p;
  single.dtype = DType::f32;
  CHECK(tensor_core::make_unit_steps(single, 132, kSharedOfHopper).count == 0);
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  ConvProblem half = p;
  half.dtype = DType::f16;
  const auto takes_as = [&](ConvDirection direction) {
    return tensor_core::form_work(GatherForm::units, {half, direction, Precision::fp32}, cuda::properties(0)).has_value();
  };
  CHECK(takes_as(ConvDirection::forward));
  CHECK(!takes_as(ConvDirection::dgrad));
}

TEST_CASE("small integers, bit for bit") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  double norm = 0;
  for (const ConvProblem& p : units_problems()) {
    norm += check_bits<Half>(p);
    norm += check_bits<BFloat16>(p);
  }
  CHECK(norm > 0);
}

TEST_CASE("infinities and NaN of the source and of weights come out as from plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  for (const bool in_weights : {false, true}) {
    for (ConvProblem p : {doubled(2, 64, 40, 136, 8), long_kernel(1, 32, 72, 72)}) {
      p.dtype = DType::bf16;
      ConvArrays<BFloat16> arrays(p, kSmallIntegers);
      auto& spoilt = in_weights ? arrays.w : arrays.x;
      spoilt[7] = BFloat16(std::numeric_limits<float>::infinity());
      if (!in_weights) spoilt[1500] = BFloat16(std::numeric_limits<float>::quiet_NaN());
      bool intact = false;
      const Array<BFloat16> expected = arrays.run(ConvDirection::forward, Algorithm::reference, false);
      const Array<BFloat16> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact, false);
      std::int64_t unusual = 0, usual = 0, wrong = 0;
      for (std::int64_t i = 0; i < got.size(); ++i) {
        const float a = static_cast<float>(got[i]), b = static_cast<float>(expected[i]);
        (std::isfinite(b) ? usual : unusual) += 1;
        wrong += a == b || (std::isnan(a) && std::isnan(b)) ? 0 : 1;
      }
      CHECK(unusual > 0);
      CHECK(usual > 0);
      CHECK_MESSAGE(wrong == 0, p, in_weights ? " weights" : " source");
    }
  }
}
