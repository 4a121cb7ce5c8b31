#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

bool has_wgmma() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

auto by_source_bulk(Precision precision) {
  return [precision](const GpuCall& call) {
    tensor_core::source_bulk_gather(
        {call.problem, call.direction, precision, call.first, call.second, call.bias, call.out, {}, 0, call.stream});
  };
}

/// Every direction that the source_bulk kernel takes, bit for bit against plain sums on small integers. Returns the number of
/// directions.
template <class E>
int check_narrow_bits(ConvProblem p, Precision precision) {
  p.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  int count = 0;
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    if (!tensor_core::cost_counts(tensor_core::GatherKernel::source_bulk, {p, direction, precision}, cuda::properties(0)))
      continue;
    bool intact = false;
    const Array<E> expected = run_on_gpu(arrays, direction, by_algorithm(Algorithm::direct), intact);
    const Array<E> got = run_on_gpu(arrays, direction, by_source_bulk(precision), intact);
    CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision);
    CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("source_bulk's steps fit shared memory, list every product, and its tiles are adjacent from sector to sector") {
  int fitting = 0, stacked = 0, whole = 0, spread = 0, dynamic = 0;
  std::vector<ConvProblem> problems = dense_problems();
  for (const ConvProblem& p : spread_problems()) problems.push_back(p);
  for (const ConvProblem& p : problems) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::BulkShape& shape :
           {tensor_core::BulkShape{2, 4, true}, tensor_core::BulkShape{1, 4, false}, tensor_core::BulkShape{1, 2, true}}) {
        const tensor_core::BulkTiling tiling = tensor_core::make_bulk_tiling(gemm, shape, 132, kSharedOfHopper);
        if (tiling.count == 0) continue;
        ++fitting;
        stacked += tiling.is_stacked ? 1 : 0;
        spread += tiling.is_spread ? 1 : 0;
        dynamic += tiling.is_dynamic ? 1 : 0;
        CHECK(tiling.shared_bytes <= kSharedOfHopper);
        CHECK(tiling.stages >= 2);
        CHECK(tiling.raw_stages >= 2);
        CHECK(tiling.rows >= gemm.rows);
        CHECK(tiling.depths == gemm.taps * gemm.planes * tiling.rows / 16);
        CHECK(tiling.depths * (shape.parts == 2 && !tiling.is_stacked ? 2 : 1) <= tensor_core::kBulkDepthsMost);
        for (int i = 0; i < tiling.depths; ++i) {
          CHECK((tiling.products[i].source + static_cast<unsigned>(tiling.positions)) * 16 <=
                static_cast<unsigned>(tiling.source_bytes));
          CHECK(tiling.products[i].weights * 16 < static_cast<unsigned>(tiling.weight_bytes));
        }
        // A tile is whole channels, and its staged rows have all their phases.
        CHECK(tiling.columns >= tiling.channels * gemm.classes);
        CHECK(tiling.channels * gemm.classes <= (tiling.is_stacked ? 32 : 64));
        if (tiling.is_spread) {  // a lane has 15 or 16 vectors of four elements; at most three of four lanes have 15
          CHECK((gemm.out_stride == 2 && gemm.classes == 1 && !tiling.is_stacked));
          CHECK(gemm.out_stride * tiling.position_step >= 15 * 16);
          CHECK(gemm.out_stride * tiling.position_step <= 16 * 16);
          CHECK(tiling.out_pitch >= gemm.out_stride * tiling.position_step);
        } else {
          CHECK(tiling.out_pitch >= gemm.out_stride * tiling.positions + 16 / shape.element_bytes - 1);
        }
        CHECK(tiling.out_pitch * shape.element_bytes % 16 == 0);
        CHECK(tiling.channels * tiling.out_pitch * shape.element_bytes <= tiling.staging_bytes);
        CHECK((tiling.is_by_warps || tiling.columns % gemm.classes == 0));
        const std::int64_t first = gemm.out_stride * tiling.position_begin + gemm.out_origin;
        CHECK(tiling.position_step * gemm.out_stride % tiling.aligned == 0);
        if (tiling.position_step == tiling.positions) {  // every row has the same window
          ++whole;
          CHECK(first % tiling.aligned == 0);
          CHECK(gemm.out_length % tiling.aligned == 0);
        } else {
          CHECK(first + tiling.aligned - 1 <= 0);
          CHECK(tiling.aligned - 1 + gemm.out_stride * tiling.position_step <= gemm.out_stride * tiling.positions);
        }
        CHECK(tiling.position_begin <= gemm.position_begin);
        CHECK(tiling.position_begin + tiling.position_tiles * tiling.position_step >=
              gemm.position_begin + gemm.position_count);
        CHECK(tiling.grid % tiling.weight_tiles == 0);  // a block keeps its weights' columns
      }
    }
  }
  CHECK(fitting > 0);
  CHECK(stacked > 0);
  CHECK(spread > 0);
  CHECK(whole > 0);
  CHECK(dynamic > 0);
  CHECK(dynamic < fitting);
}

TEST_CASE("small integers, several tiles a block, dynamic and static scheduler, one and two chunks of rows") {
  if (!has_wgmma()) SKIP_TEST("no wgmma");
  int runs = 0;
  const std::int64_t part = is_reduced() ? 50 : 1;
  for (const ConvProblem& p :
       {sized({.N = 2, .C_in = 32, .C_out = 20, .L_in = 150'000 / part, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2}),
        sized({.N = 1, .C_in = 32, .C_out = 132, .L_in = 80'001 / part, .K = 3, .S = 2, .D = 2}),
        sized({.N = 2, .C_in = 16, .C_out = 12, .L_in = 300'000 / part, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
        sized({.N = 3, .C_in = 8, .C_out = 24, .L_in = 150'001 / part, .K = 2})}) {
    runs += check_narrow_bits<float>(p, Precision::fp32);
    runs += check_narrow_bits<float>(p, Precision::tf32);
    runs += check_narrow_bits<Half>(p, Precision::fp32);
    runs += check_narrow_bits<BFloat16>(p, Precision::fp32);
  }
  CHECK(runs > 16);
}

TEST_CASE("the same bits from run to run with the dynamic scheduler, if a warp recomputes many tiles") {
  if (!has_wgmma()) SKIP_TEST("no wgmma");
  const std::int64_t length = is_reduced() ? 3000 : 200'000;
  ConvArrays<float> arrays(sized({.N = 1, .C_in = 8, .C_out = 40, .L_in = length, .K = 3, .S = 2, .D = 2}), kNormal);
  // At some positions every number is too small, and a few tiles have no operands.
  for (std::int64_t i = 0; i < arrays.x.size(); ++i)
    if (i % length / 8 % 32 == 0) arrays.x[i] *= 1e-12F;
  for (std::int64_t i = 1; i < arrays.x.size(); i += 50'021) arrays.x[i] = std::numeric_limits<float>::infinity();
  bool intact = false;
  const auto run = [&](const auto& call) { return run_on_gpu(arrays, ConvDirection::forward, call, intact, false); };
  const auto first = run(by_source_bulk(Precision::fp32));
  for (int again = 0; again < 4; ++again) CHECK(same_bits(run(by_source_bulk(Precision::fp32)), first));
  const auto plain = run(by_algorithm(Algorithm::direct));
  for (Array<float>* array : {&arrays.x, &arrays.w})
    for (std::int64_t i = 0; i < array->size(); ++i) (*array)[i] = std::abs((*array)[i]);
  const auto magnitude = run(by_algorithm(Algorithm::direct));
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < first.size(); ++i) {
    if (std::isfinite(plain[i]) != std::isfinite(first[i])) ++wrong;
    if (std::isfinite(plain[i]) && !(std::abs(first[i] - plain[i]) <= 1e-6F * magnitude[i])) ++wrong;
  }
  CHECK(wrong == 0);
}
