#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/phased_stride2.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/tiling.hpp"
#include "cuda/cuda.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using cuda::tensor_core::GatherKernel;
namespace tensor_core = cuda::tensor_core;

namespace {

ConvProblem phases_problem(std::int64_t N, std::int64_t C_in, std::int64_t C_out, std::int64_t L_in, std::int64_t P_l = 1,
                           std::int64_t G = 1, std::int64_t P_r = 1) {
  return sized({.N = N, .C_in = C_in, .C_out = C_out, .L_in = L_in, .K = 4, .S = 2, .P_l = P_l, .P_r = P_r, .G = G});
}

/// Channels near the tile sizes, rows near the tile sizes, groups, paddings; rows of whole vectors of every type.
std::vector<ConvProblem> phases_problems() {
  return {
      phases_problem(1, 32, 32, 512),          phases_problem(2, 40, 33, 520),          phases_problem(1, 64, 64, 1024),
      phases_problem(3, 33, 96, 576, 5, 1, 5), phases_problem(1, 128, 128, 640),        phases_problem(2, 100, 200, 528, 1, 2),
      phases_problem(1, 192, 96, 4096),        phases_problem(1, 66, 26, 568, 1, 2, 9), phases_problem(1, 48, 250, 712)};
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

auto by_phases(Precision precision) {
  return [precision](const GpuCall& call) {
    tensor_core::phased_stride2_gather(
        {call.problem, ConvDirection::forward, precision, call.first, call.second, call.bias, call.out, {}, 0, call.stream});
  };
}

/// Whether two parts of each number are computed: with more rows the high parts would have too many products.
bool takes_fp32(const ConvProblem& p) { return p.C_in / p.G <= 128; }

template <class E>
double check_bits(ConvProblem p, Precision precision) {
  p.dtype = dtype_of<E>;
  CHECK(tensor_core::cost_counts(GatherKernel::phased_stride2, {p, ConvDirection::forward, precision}, cuda::properties(0))
            .has_value());
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const Array<E> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
  bool intact = false;
  const Array<E> got = run_on_gpu(arrays, ConvDirection::forward, by_phases(precision), intact);
  CHECK_MESSAGE(same_bits(got, expected), p, ' ', precision);
  CHECK_MESSAGE(intact, p, ": wrote outside its output");
  return expected.norm();
}

}  // namespace

TEST_CASE("steps fit shared memory, cover the reduction, the channels and every output") {
  for (ConvProblem p : phases_problems()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      p.dtype = dtype;
      for (const int channels : {32, 64, 96}) {
        const tensor_core::Phased2Tiling tiling = tensor_core::make_phased2_tiling(p, channels, 1, 132, kSharedOfHopper);
        REQUIRE(tiling.count > 0);
        const bool in_parts = tensor_core::make_phased2_tiling(p, channels, 2, 132, kSharedOfHopper).count > 0;
        CHECK(in_parts == (channels <= 64 && takes_fp32(p)));
        CHECK(tiling.shared_bytes <= kSharedOfHopper);
        CHECK(tiling.stages >= 2);
        CHECK(tiling.count * tensor_core::kPhased2Rows >= p.C_in / p.G);
        CHECK(tiling.weight_tiles * channels >= p.C_out);
        CHECK(tiling.tiles * tensor_core::kPhased2Positions * tensor_core::kPhased2Classes >= p.N * p.L_out);
        CHECK(tiling.grid % tiling.weight_tiles == 0);
        // The vectors that a tile reads contain all that its first and last position need.
        const auto vector = static_cast<int>(16 / size_of(dtype));
        CHECK(tiling.first % vector == 0);
        CHECK(tiling.lead >= 1);
        CHECK(tiling.lead + tensor_core::kPhased2Positions + 2 <= tensor_core::phased2_vectors(16 / vector) * vector);
      }
    }
  }
}

TEST_CASE("other strides, kernels, paddings and rows are declined, and weights that do not fit") {
  const auto takes = [](const ConvProblem& p) {
    return tensor_core::make_phased2_tiling(p, 128, 1, 132, kSharedOfHopper).count != 0;
  };
  const ConvProblem p = phases_problem(1, 128, 128, 640);
  CHECK(takes(p));
  const auto with = [&](auto change) {
    ConvProblem other = p;
    change(other);
    return sized(other);
  };
  CHECK(!takes(with([](ConvProblem& o) { o.S = 3; })));
  CHECK(!takes(with([](ConvProblem& o) { o.K = 3; })));
  CHECK(!takes(with([](ConvProblem& o) { o.D = 3; })));
  CHECK(!takes(with([](ConvProblem& o) { o.P_l = 2; })));
  CHECK(!takes(with([](ConvProblem& o) { o.L_in = 641; })));
  CHECK(!takes(with([](ConvProblem& o) { o.P_r = 2; })));
  CHECK(!takes(with([](ConvProblem& o) { o.C_in = 256; })));
}

TEST_CASE("it takes forward, from 32 rows on, in fp32 up to 128") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const auto takes = [](ConvProblem p, DType dtype, Precision precision, ConvDirection direction = ConvDirection::forward) {
    p.dtype = dtype;
    return tensor_core::cost_counts(GatherKernel::phased_stride2, {p, direction, precision}, cuda::properties(0)).has_value();
  };
  const ConvProblem p = phases_problem(1, 128, 128, 640);
  CHECK(takes(p, DType::bf16, Precision::fp32));
  CHECK(takes(p, DType::f32, Precision::tf32));
  CHECK(takes(p, DType::f32, Precision::fp32));
  CHECK(!takes(phases_problem(1, 192, 96, 4096), DType::f32, Precision::fp32));
  CHECK(!takes(p, DType::bf16, Precision::fp32, ConvDirection::dgrad));
  CHECK(!takes(phases_problem(1, 24, 128, 640), DType::bf16, Precision::fp32));
  CHECK(!takes(phases_problem(1, 128, 128, 64), DType::bf16, Precision::fp32));
}

TEST_CASE("small integers, bit for bit") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  double norm = 0;
  for (const ConvProblem& p : phases_problems()) {
    norm += check_bits<float>(p, Precision::tf32);
    if (takes_fp32(p)) norm += check_bits<float>(p, Precision::fp32);
    norm += check_bits<Half>(p, Precision::fp32);
    norm += check_bits<BFloat16>(p, Precision::fp32);
  }
  CHECK(norm > 0);
}

TEST_CASE("infinities, NaN and numbers of all sizes come out as from plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const ConvProblem p = phases_problem(2, 40, 72, 1024);
  ConvArrays<float> arrays(p, kSmallIntegers);
  arrays.x[123] = std::numeric_limits<float>::infinity();
  arrays.x[15000] = std::numeric_limits<float>::quiet_NaN();
  // Zeros, then numbers far below the smallest f16 at the scale of the other numbers, then zeros: no sum has both kinds.
  for (std::int64_t row = 0; row < arrays.x.size(); row += p.L_in) {
    for (std::int64_t i = 398; i < 502; ++i)
      arrays.x[row + i] = i < 400 || i >= 500 ? 0.0F : std::ldexp(arrays.x[row + i], -60);
  }
  const Array<float> expected = arrays.run(ConvDirection::forward, Algorithm::reference, false);
  for (const Precision precision : {Precision::fp32, Precision::tf32}) {
    bool intact = false;
    const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, by_phases(precision), intact, false);
    std::int64_t unusual = 0, tiny = 0, wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      unusual += std::isfinite(expected[i]) ? 0 : 1;
      tiny += expected[i] != 0 && std::fabs(expected[i]) < 1e-10F ? 1 : 0;
      wrong += got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])) ? 0 : 1;
    }
    CHECK(unusual > 0);
    CHECK(tiny > 1000);
    CHECK(wrong == 0);
  }
}

TEST_CASE("numbers too small for f16 cost few sums: only those that they can affect") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  ConvArrays<float> arrays(phases_problem(1, 192, 96, 4096), kNormal);
  for (std::int64_t i = 5; i < arrays.x.size(); i += 997) arrays.x[i] = std::ldexp(1.0F, -40);
  bool intact = false;
  const std::uint64_t before = cuda::computed_again();
  const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, by_phases(Precision::tf32), intact);
  const std::uint64_t again = cuda::computed_again() - before;
  CHECK(got.norm() > 0);
  CHECK(again < 100);  // of 786432; it would be some hundreds if one such number made all sums of its tile suspect
}

TEST_CASE("fp32 is as accurate as plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  for (const std::int64_t rows : {32, 100, 128}) {
    const ConvArrays<float> arrays(phases_problem(2, rows, 64, 2048), kNormal);
    bool intact = false;
    const Array<float> exact = arrays.run(ConvDirection::forward, Algorithm::reference);
    const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, by_phases(Precision::fp32), intact);
    double most = 0, largest = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::fabs(static_cast<double>(got[i]) - static_cast<double>(exact[i])));
      largest = std::max(largest, std::fabs(static_cast<double>(exact[i])));
    }
    CAPTURE(rows);
    CHECK(most < 0x1p-20 * largest);
  }
}
