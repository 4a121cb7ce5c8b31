#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/source_tma_16bit.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using cuda::TapGemm;
using cuda::tensor_core::GatherKernel;
using cuda::tensor_core::Tma16Place;
using cuda::tensor_core::Tma16Tiling;
namespace tensor_core = cuda::tensor_core;

namespace {

Tma16Tiling tiling_of(const ConvProblem& p, ConvDirection direction, Tma16Place place = {}) {
  return tensor_core::make_tma16_tiling(cuda::make_tap_gemm(p, direction), place, kSmsOfHopper, kSharedOfHopper);
}

/// Problems near the tile sizes of the kernel, in both directions; every length modulo a sector.
struct Case {
  ConvProblem problem;
  ConvDirection direction;
  std::int64_t misalignment;
};
std::vector<Case> tma16_cases(unsigned seed, int turns) {
  std::vector<Case> cases;
  Picker pick(seed);
  const std::int64_t lengths[] = {64, 200, 239, 240, 241, 500, 511, 512, 516, 520, 1004, 1022, 2048, 2500};
  for (int turn = 0; turn < turns; ++turn) {
    const bool is_forward = turn % 2 == 0;
    ConvProblem p;
    p.dtype = DType::bf16;
    p.N = pick(1, 3);
    p.S = is_forward && turn % 3 == 0 ? 2 : 1;
    p.K = pick(1, 5);
    p.D = p.S * pick(1, 4);
    const std::int64_t rows = 16 * pick(1, 4), columns = turn % 5 == 0 ? pick(1, 64) : 16 * pick(1, 4);
    p.C_in = is_forward ? rows : columns;
    p.C_out = is_forward ? columns : rows;
    p.L_in = lengths[pick(0, 13)];
    p.P_l = pick(0, 5);
    p.P_r = pick(0, 5);
    p.OP = pick(0, 1);
    p = sized(p);
    const ConvDirection direction = is_forward ? ConvDirection::forward : ConvDirection::dgrad;
    const std::int64_t misalignment = turn % 4 == 0 ? 2 * pick(0, 7) : 0;
    const Tma16Place place{static_cast<int>(misalignment % 8), static_cast<int>(misalignment % 16)};
    if (p.L_out > 0 && tiling_of(p, direction, place).depths > 0) cases.push_back({p, direction, misalignment});
  }
  return cases;
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

auto turned(const cuda::Epilogue& epilogue = {}) {
  return [epilogue](const GpuCall& call) {
    tensor_core::source_tma_16bit_gather({call.problem, call.direction, Precision::fp32, call.first, call.second, call.bias,
                                          call.out, epilogue, 0, call.stream});
  };
}

template <class E>
double check_bits(Case of) {
  of.problem.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(of.problem, kSmallIntegers);
  const Array<E> expected = arrays.run(of.direction, Algorithm::reference);
  bool intact = false;
  const Array<E> got = run_on_gpu(arrays, of.direction, turned(), intact, true, of.misalignment);
  CHECK_MESSAGE(same_bits(got, expected), of.problem, ' ', of.direction, " misaligned by ", of.misalignment);
  CHECK_MESSAGE(intact, of.problem, ' ', of.direction, ": wrote outside its output");
  return expected.norm();
}

}  // namespace

TEST_CASE("windows of all tiles cover every row, begin at sectors, and boxes contain what they need") {
  int odd = 0, several = 0;
  for (const Case& of : tma16_cases(3, 4000)) {
    const TapGemm gemm = cuda::make_tap_gemm(of.problem, of.direction);
    const Tma16Place place{static_cast<int>(of.misalignment % 8), static_cast<int>(of.misalignment % 16)};
    const Tma16Tiling tiling = tiling_of(of.problem, of.direction, place);
    odd += tiling.is_even ? 0 : 1;
    several += tiling.out.maps > 1 ? 1 : 0;
    CAPTURE(of.problem);
    CAPTURE(of.direction);
    std::vector<bool> used(static_cast<std::size_t>(tiling.columns));
    for (int c = 0; c < tiling.columns; ++c) {
      const int shift = tiling.shift_of(c), row = tiling.staged_row(c);
      REQUIRE((row >= 0 && row < tiling.columns));
      REQUIRE(!used[static_cast<std::size_t>(row)]);
      used[static_cast<std::size_t>(row)] = true;
      REQUIRE((shift >= tiling.least_shift && shift <= tiling.most_shift));
      REQUIRE((shift >= 0 && shift + tiling.window <= tiling.stride * tiling.positions));
      REQUIRE((place.out + c * gemm.out_length + tiling.out_first + shift + (1 << 20)) % 16 == 0);
      REQUIRE(tiling.out_first + shift <= 0);
      REQUIRE(tiling.out_first + shift + tiling.tiles_of_row * tiling.window >= gemm.out_length);
    }
    REQUIRE(tiling.window % 16 == 0);
    REQUIRE(tiling.source_first % 8 == 0);
    REQUIRE(tiling.pitch % 16 == 8);
    REQUIRE(tiling.rows % (8 * tiling.source.classes) == 0);
    REQUIRE((gemm.source_length - tiling.source.skew) % 8 == 0);
    const std::int64_t position = (tiling.out_first - gemm.out_origin) / gemm.out_stride;
    const int late = (tiling.source.group - 1) * tiling.source.skew;
    REQUIRE(position + gemm.source_origin == tiling.source_first - place.source - late + tiling.first_slot);
    const auto last = tiling.first_slot + static_cast<int>((gemm.taps - 1) * gemm.tap_step) + tiling.positions - 1;
    // For the rows with the first and the last begin.
    REQUIRE((tiling.first_slot >= late && last < tiling.pitch));
    REQUIRE(tiling.shared_bytes <= kSharedOfHopper);
    REQUIRE(tiling.depths == tiling.rows / 16 * gemm.taps);
  }
  CHECK(odd > 0);
  CHECK(several > 0);
}

TEST_CASE("what is none of its kind is declined") {
  const auto takes = [](ConvProblem p, ConvDirection direction = ConvDirection::forward) {
    p.dtype = DType::bf16;
    return tiling_of(sized(p), direction).depths != 0;
  };
  const ConvProblem p{.N = 2, .C_in = 32, .C_out = 64, .L_in = 1000, .K = 5, .D = 3};
  const auto with = [&](auto change) {
    ConvProblem other = p;
    change(other);
    return other;
  };
  CHECK(takes(p));
  CHECK(takes(p, ConvDirection::dgrad));
  CHECK(takes(with([](ConvProblem& o) { o.S = 2, o.D = 2; })));
  CHECK(!takes(with([](ConvProblem& o) { o.S = 2, o.D = 2; }), ConvDirection::dgrad));
  CHECK(!takes(with([](ConvProblem& o) { o.S = 2, o.D = 1; })));
  CHECK(!takes(with([](ConvProblem& o) { o.S = 3, o.D = 3; })));
  CHECK(!takes(with([](ConvProblem& o) { o.C_out = 65; })));
  CHECK(!takes(with([](ConvProblem& o) { o.C_in = 24; })));
  CHECK(!takes(with([](ConvProblem& o) { o.C_in = 80; })));
  CHECK(!takes(with([](ConvProblem& o) { o.G = 2; })));
  CHECK(!takes(with([](ConvProblem& o) { o.L_in = 1001; })));  // takes only rows of whole words
  CHECK(!takes(with([](ConvProblem& o) { o.L_in = 32; })));
  CHECK(!takes(with([](ConvProblem& o) { o.D = 100; })));
}

TEST_CASE("it takes 16 bits, rows of stride 1, and of stride 2 where all taps are in one phase") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const auto takes = [](std::int64_t S, DType dtype, std::int64_t D = 1) {
    const ConvProblem p =
        sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 4096, .K = 3, .S = S, .P_l = 1, .P_r = 1, .D = D, .dtype = dtype});
    return tensor_core::cost_counts(GatherKernel::source_tma_16bit, {p, ConvDirection::forward, Precision::fp32},
                                    cuda::properties(0))
        .has_value();
  };
  CHECK(takes(1, DType::f16));
  CHECK(takes(1, DType::bf16));
  CHECK(!takes(1, DType::f32));
  CHECK(takes(2, DType::bf16, 2));
  CHECK(!takes(2, DType::bf16));
}

TEST_CASE("small integers, bit for bit") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  double norm = 0;
  int turn = 0;
  for (const Case& of : thinned(tma16_cases(11, 240)))
    norm += ++turn % 2 == 0 ? check_bits<Half>(of) : check_bits<BFloat16>(of);
  CHECK(norm > 0);
}

TEST_CASE("random numbers against float64") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  for (const Case& of : thinned(tma16_cases(17, 60))) {
    const ConvArrays<BFloat16> arrays(of.problem, kNormal);
    bool intact = false;
    const Array<BFloat16> got = run_on_gpu(arrays, of.direction, turned(), intact, true, of.misalignment);
    CHECK(intact);
    const std::vector<double> exact = arrays.formula<double>(of.direction);
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      worst =
          worse(worst, std::abs(as_double(got[static_cast<std::int64_t>(i)]) - exact[i]) / std::max(4.0, std::abs(exact[i])));
    CHECK_MESSAGE(worst * 4 <= kBFloat16Rounding, of.problem, ' ', of.direction);
  }
}

TEST_CASE("infinities and NaN affect only the sums that contain them, also next to padding and other tiles") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const ConvProblem p =
      sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1004, .K = 3, .P_l = 4, .P_r = 2, .D = 2, .dtype = DType::bf16});
  ConvArrays<BFloat16> arrays(p, kSmallIntegers);
  const auto spoil = [](Array<BFloat16>& array, std::int64_t length) {
    array[0] = static_cast<BFloat16>(std::numeric_limits<float>::infinity());
    array[5 * length - 1] = static_cast<BFloat16>(std::numeric_limits<float>::quiet_NaN());
    array[5 * length] = static_cast<BFloat16>(std::numeric_limits<float>::infinity());
    array[7 * length + 250] = static_cast<BFloat16>(-std::numeric_limits<float>::infinity());
  };
  spoil(arrays.x, p.L_in);
  spoil(arrays.y, p.L_out);
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    bool intact = false;
    const Array<BFloat16> expected = arrays.run(direction, Algorithm::reference);
    const Array<BFloat16> got = run_on_gpu(arrays, direction, turned(), intact);
    CHECK(intact);
    std::int64_t unusual = 0, wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const double is = as_double(got[i]), should_be = as_double(expected[i]);
      unusual += std::isfinite(should_be) ? 0 : 1;
      wrong += is == should_be || (std::isnan(is) && std::isnan(should_be)) ? 0 : 1;
    }
    CHECK(unusual > 0);
    CHECK_MESSAGE(wrong == 0, direction);
  }
}

TEST_CASE("an activation and a residual have the bits of launches of their own") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  for (const Case& of : thinned(tma16_cases(23, 60))) {
    const ConvArrays<BFloat16> arrays(of.problem, kSmallIntegers);
    const Array<BFloat16> sums = arrays.run(of.direction, Algorithm::reference);
    Array<BFloat16> other(sums.size());
    other.small_integers(6);
    const DeviceArray<BFloat16> residual(other, of.misalignment);
    constexpr float kSlope = 0.25F, kScale = 0.5F;
    const auto with_epilogue = [&](const GpuCall& call) {
      cuda::Epilogue epilogue;
      epilogue.activation = cuda::Activation::leaky_relu;
      epilogue.slope = kSlope;
      epilogue.scale = kScale;
      epilogue.residual = reinterpret_cast<const char*>(residual.data()) - static_cast<const char*>(call.out);
      turned(epilogue)(call);
    };
    bool intact = false;
    const Array<BFloat16> got = run_on_gpu(arrays, of.direction, with_epilogue, intact, true, of.misalignment);
    CHECK(intact);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const auto sum = static_cast<float>(sums[i]);
      const auto active = static_cast<float>(static_cast<BFloat16>(sum < 0 ? kSlope * sum : sum));
      const auto should_be = static_cast<BFloat16>(std::fma(kScale, active, static_cast<float>(other[i])));
      wrong += static_cast<float>(got[i]) == static_cast<float>(should_be) ? 0 : 1;
    }
    CHECK_MESSAGE(wrong == 0, of.problem, ' ', of.direction, " misaligned by ", of.misalignment);
  }
}
