#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"
#include "cuda/cuda.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using cuda::tensor_core::GatherKernel;
namespace tensor_core = cuda::tensor_core;

namespace {

/// K = 2*S, padded so that the first and last outputs use half of a unit's taps.
ConvProblem doubled(std::int64_t N, std::int64_t C_in, std::int64_t C_out, std::int64_t L_in, std::int64_t S,
                    std::int64_t G = 1, std::int64_t P_r = 0) {
  return sized(
      {.N = N, .C_in = C_in, .C_out = C_out, .L_in = L_in, .K = 2 * S, .S = S, .P_l = S / 2, .P_r = S / 2 + P_r, .G = G});
}
/// The shape of WaveGAN's layers.
ConvProblem long_kernel(std::int64_t N, std::int64_t C_in, std::int64_t C_out, std::int64_t L_in, std::int64_t P = 11,
                        std::int64_t G = 1) {
  return sized({.N = N, .C_in = C_in, .C_out = C_out, .L_in = L_in, .K = 25, .S = 4, .P_l = P, .P_r = P, .OP = 1, .G = G});
}

/// Channels and units near the tile sizes, groups, several paddings, an odd and an even number of tiles.
std::vector<ConvProblem> units_problems() {
  return {doubled(1, 32, 32, 128, 8),     doubled(3, 64, 33, 136, 8),  doubled(2, 96, 70, 40, 8, 1, 8),
          doubled(1, 64, 64, 256, 4),     doubled(3, 32, 130, 264, 4), doubled(2, 192, 80, 72, 4, 2, 16),
          long_kernel(2, 64, 64, 128),    long_kernel(3, 32, 72, 152), long_kernel(1, 128, 96, 72, 3, 2),
          doubled(1, 256, 24, 1024, 8, 2)};
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

constexpr auto kByUnits = [](const GpuCall& call) {
  tensor_core::phased_stride4_gather({call.problem,
                                      ConvDirection::forward,
                                      Precision::fp32,
                                      call.first,
                                      call.second,
                                      call.bias,
                                      call.out,
                                      {},
                                      0,
                                      call.stream});
};

template <class E>
double check_bits(ConvProblem p) {
  p.dtype = dtype_of<E>;
  CHECK(tensor_core::phased_stride4_tiling(p, cuda::properties(0)).count != 0);
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const Array<E> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
  bool intact = false;
  const Array<E> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact);
  CHECK_MESSAGE(same_bits(got, expected), p);
  CHECK_MESSAGE(intact, p, ": wrote outside its output");
  return expected.norm();
}

tensor_core::Phased4Tiling tiling_of(ConvProblem p, DType dtype = DType::bf16) {
  p.dtype = dtype;
  return tensor_core::make_phased4_tiling(p, 132, kSharedOfHopper);
}

}  // namespace

TEST_CASE("steps fit shared memory, cover the reduction, the channels and every output") {
  for (const ConvProblem& p : units_problems()) {
    const tensor_core::Phased4Tiling tiling = tiling_of(p);
    REQUIRE(tiling.count > 0);
    CHECK(tiling.shared_bytes <= kSharedOfHopper);
    CHECK(tiling.stages >= 3);
    CHECK(tiling.count * tensor_core::kPhased4Rows == p.C_in / p.G);
    CHECK(tiling.column_tiles * tiling.channels >= p.C_out);
    CHECK(tiling.tiles * tensor_core::kPhased4Positions * p.S >= p.N * p.L_out);
    CHECK(tiling.turns == tiling.tiles * tiling.column_tiles);
    // The box that a tile reads contains all that its first and last unit need.
    const tensor_core::Phased4Pattern& pattern = tensor_core::kPhased4Patterns[tiling.pattern];
    CHECK(tiling.first % 8 == 0);
    CHECK(tiling.lead % 2 == 1);
    CHECK(tiling.lead + tensor_core::kPhased4Positions + pattern.shifts() - 1 <= tensor_core::kPhased4Width);
  }
}

TEST_CASE("steps of f32 fit shared memory, and products have as many columns as the classes have taps") {
  int fitting = 0;
  for (const ConvProblem& p : units_problems()) {
    const tensor_core::Phased4Tiling tiling = tiling_of(p, DType::f32);
    // The preconverted kernel takes K = 2*S. With a padding of 3 the box would begin too far before the tile.
    CHECK((tiling.count != 0) == (p.K == 25 && p.P_l == 11));
    if (tiling.count == 0) continue;
    ++fitting;
    CHECK(tiling.count == tiling_of(p).count);
    CHECK(tiling.shared_bytes <= kSharedOfHopper);
    CHECK(tiling.stages >= 3);
    CHECK(tiling.channels == tensor_core::kPhased4F32Columns / p.S);
    CHECK(tiling.turns == tiling.tiles * tiling.column_tiles);
    const tensor_core::Phased4Pattern& pattern = tensor_core::kPhased4Patterns[tiling.pattern];
    CHECK(tiling.first % 4 == 0);
    CHECK(tiling.lead % 2 == 1);
    CHECK(tiling.lead + tensor_core::kPhased4Positions + pattern.shifts() - 1 <= tensor_core::kPhased4F32Width);
    const std::int64_t columns = tensor_core::f32_unit_columns(pattern);
    CHECK(columns == tiling.channels * p.K);
    CHECK(tiling.packed_bytes == tiling.column_tiles * (p.C_in / p.G) * columns * 4);
  }
  CHECK(fitting >= 2);
}

TEST_CASE("products have as many columns as the classes have taps") {
  for (const ConvProblem& p : units_problems()) {
    const tensor_core::Phased4Tiling tiling = tiling_of(p);
    CHECK(tensor_core::kPhased4Patterns[tiling.pattern].columns() == tiling.channels * p.K);
  }
}

TEST_CASE("other strides, kernels, dilations, paddings, rows and types are declined") {
  const ConvProblem p = doubled(1, 64, 64, 256, 8);
  const auto takes = [](const ConvProblem& problem) { return tiling_of(problem).count != 0; };
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
  ConvProblem twice = p;
  twice.dtype = DType::f64;
  CHECK(tensor_core::make_phased4_tiling(twice, 132, kSharedOfHopper).count == 0);
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  ConvProblem half = p;
  half.dtype = DType::f16;
  const auto takes_as = [&](const ConvProblem& problem, ConvDirection direction, Precision precision = Precision::fp32) {
    return tensor_core::cost_counts(GatherKernel::phased_stride4, {problem, direction, precision}, cuda::properties(0))
        .has_value();
  };
  CHECK(takes_as(half, ConvDirection::forward));
  CHECK(!takes_as(half, ConvDirection::dgrad));
  const ConvProblem single = long_kernel(1, 64, 64, 256);
  CHECK(takes_as(single, ConvDirection::forward));
  CHECK(!takes_as(single, ConvDirection::forward, Precision::tf32));
}

TEST_CASE("small integers, bit for bit") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  double norm = 0;
  for (const ConvProblem& p : units_problems()) {
    norm += check_bits<Half>(p);
    norm += check_bits<BFloat16>(p);
    if (tiling_of(p, DType::f32).count != 0) norm += check_bits<float>(p);
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

TEST_CASE("f32 is as accurate as plain f32 sums, over 160 powers of two in one row as well") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  std::mt19937 random(3);
  for (const ConvProblem& p : {long_kernel(1, 64, 40, 136, 11, 2), long_kernel(2, 64, 72, 152)}) {
    for (const bool wide : {false, true}) {
      ConvArrays<float> arrays(p, kNormal);
      for (std::int64_t i = 0; wide && i < arrays.x.size(); ++i)
        arrays.x[i] = std::ldexp(arrays.x[i], static_cast<int>(random() % 160) - 80);
      bool intact = false;
      const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact);
      check_as_accurate_as_plain(got, arrays, ConvDirection::forward, p);
    }
  }
}

TEST_CASE("infinities and NaN of f32 come out as from plain sums, and sums of subnormal numbers, the same from run to run") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  enum class Kind { source, weights, subnormal };
  for (const ConvProblem& p : {long_kernel(2, 64, 40, 136), long_kernel(1, 32, 72, 72)}) {
    for (const Kind kind : {Kind::source, Kind::weights, Kind::subnormal}) {
      ConvArrays<float> arrays(p, kSmallIntegers);
      if (kind == Kind::source) make_unusual(arrays, 1500);
      if (kind == Kind::weights) arrays.w[7] = std::numeric_limits<float>::infinity();
      // Without larger numbers: in a sum with them the result would depend on the order.
      for (std::int64_t i = 0; kind == Kind::subnormal && i < arrays.x.size(); ++i)
        arrays.x[i] = i % 3 == 0 ? std::ldexp(3.0F, -140) : 0.0F;
      for (std::int64_t i = 0; kind == Kind::subnormal && i < arrays.bias_out.size(); ++i) arrays.bias_out[i] = 0.0F;
      bool intact = false;
      const Array<float> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
      const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact);
      if (kind == Kind::subnormal) {
        CHECK(expected.norm() > 0);
        CHECK(std::fabs(expected[0]) < 1e-37F);
        CHECK_MESSAGE(same_bits(got, expected), p);
      } else {
        check_unusual(got, expected, p);
      }
      CHECK(same_bits(run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact), got));
    }
  }
}

TEST_CASE("numbers too small to be split cost few sums of f32: as many as their count can have spoilt") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  for (const bool in_weights : {false, true}) {
    const ConvProblem p = long_kernel(2, 64, 72, 152);
    ConvArrays<float> arrays(p, kNormal);
    auto& spoilt = in_weights ? arrays.w : arrays.x;
    for (std::int64_t i = 0; i < spoilt.size(); ++i)
      if (i % 4999 == 5) spoilt[i] = std::ldexp(1.0F, -40);
    bool intact = false;
    const std::uint64_t before = cuda::computed_again();
    const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact);
    const std::uint64_t again = cuda::computed_again() - before;
    CHECK_MESSAGE(again < 20, p, in_weights ? " weights" : " source");
    check_as_accurate_as_plain(got, arrays, ConvDirection::forward, p);
  }
}

TEST_CASE("a source with half of its elements zero, as after a ReLU, is as accurate, and nothing is recomputed") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const ConvProblem p = long_kernel(2, 64, 72, 152);
  ConvArrays<float> arrays(p, kNormal);
  for (std::int64_t i = 0; i < arrays.x.size(); ++i) arrays.x[i] = std::max(arrays.x[i], 0.0F);
  bool intact = false;
  const std::uint64_t before = cuda::computed_again();
  const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, kByUnits, intact);
  CHECK(cuda::computed_again() == before);
  check_as_accurate_as_plain(got, arrays, ConvDirection::forward, p);
}
