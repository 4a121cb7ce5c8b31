#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <type_traits>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// Runs the stride1 kernel twice on an f32 problem and compares with the reference. The second sample is too small for f16 at
/// the scale of the others, so that all of its sums are recomputed.
template <class E>
void check_many_runs(ConvProblem p, Precision precision) {
  p.dtype = dtype_of<E>;
  ConvArrays<E> arrays(p, kSmallIntegers);
  if constexpr (std::is_same_v<E, float>)
    for (std::int64_t i = p.C_in * p.L_in; i < 2 * p.C_in * p.L_in; ++i) arrays.x[i] = std::ldexp(arrays.x[i], -40);
  const Array<E> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
  const auto by_rows = [&](const GpuCall& at) {
    tensor_core::gather_by(tensor_core::GatherKernel::stride1, {at.problem, at.direction, precision, at.first, at.second,
                                                                at.bias, at.out, cuda::Epilogue{}, 0, at.stream});
  };
  for (int turn = 0; turn < 2; ++turn) {
    bool intact = false;
    const Array<E> got = run_on_gpu(arrays, ConvDirection::forward, by_rows, intact);
    CHECK_MESSAGE(same_bits(got, expected), p, ' ', precision, " turn ", turn);
    CHECK_MESSAGE(intact, p, ": wrote outside its output");
  }
}

}  // namespace

TEST_CASE("row steps fit shared memory and leave no position out") {
  int fitting = 0, pairs = 0, odd = 0, two_classes = 0, carried = 0, carried_halves = 0;
  for (const ConvProblem& p : row_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::Stride1Shape& shape : {tensor_core::Stride1Shape{1, 128, 2, 4, 2304, 0, 0, 0, 0},
                                                     tensor_core::Stride1Shape{1, 128, 2, 4, 2304, 0, 0, 12, 4},
                                                     tensor_core::Stride1Shape{2, 128, 1, 4, 18048, 20480, 32, 0, 0},
                                                     tensor_core::Stride1Shape{2, 128, 1, 2, 8832, 36864, 128, 4, 8},
                                                     tensor_core::Stride1Shape{2, 128, 1, 2, 8832, 36864, 128, 4, 2}}) {
        const tensor_core::Stride1Tiling tiling = tensor_core::make_stride1_tiling(gemm, shape, 132, kSharedOfHopper);
        if (tiling.count == 0) continue;
        ++fitting;
        pairs += tiling.stores_pairs ? 1 : 0;
        odd += tiling.parity == tensor_core::Stride1Parity::odd ? 1 : 0;
        two_classes += tiling.classes == 2 ? 1 : 0;
        const bool carries = tiling.store_classes != 0;
        carried += carries && shape.element_bytes == 4 ? 1 : 0;
        carried_halves += carries && shape.element_bytes == 2 ? 1 : 0;
        CHECK(tiling.shared_bytes <= kSharedOfHopper);
        CHECK(tiling.stages >= 2);
        CHECK(tiling.rows * tiling.count >= gemm.rows);
        CHECK(tiling.span == tiling.positions + gemm.taps - 1);
        CHECK(tiling.pitch >= tiling.span * shape.element_bytes);
        // No bank conflicts; boxes begin at multiples of 128 bytes.
        CHECK(tiling.pitch % (tiling.classes == 2 ? 64 : 32) == (tiling.classes == 2 ? 32 : 16));
        CHECK(tiling.stage_bytes % 256 == 0);
        CHECK((tiling.classes == 0 || tiling.classes * gemm.source_length * shape.element_bytes % 16 == 0));
        CHECK((!carries || tiling.store_classes * gemm.out_length * shape.element_bytes % 32 == 0));
        CHECK((!carries || (gemm.out_origin + tiling.position_begin) % 2 == 0));
        // A run of tiles begins one sector early. Both consumers have the same number of its tiles. The columns that a row's
        // last tile carries are no outputs.
        CHECK((carries ? tiling.run % 2 == 0 && tiling.last_run % 2 == 0 : tiling.run == 1));
        CHECK((!carries || (tiling.aligned * shape.element_bytes == 32 && tiling.last_run <= tiling.run &&
                            tiling.position_begin + tiling.aligned <= gemm.position_begin)));
        const std::int64_t reach = tiling.position_begin + (tiling.position_tiles - 1) * tiling.position_step +
                                   tiling.last_run * tiling.positions - tiling.aligned + 1;
        CHECK((!carries || reach >= gemm.position_begin + gemm.position_count));
        CHECK(tiling.store_classes <= tensor_core::kStoreClassesMost);
        CHECK(tiling.rings == (tensor_core::takes_turns(shape.parts, shape.element_bytes) ? 1 : 2));
        CHECK(tiling.position_step <= tiling.run * tiling.positions);
        CHECK((!tiling.stores_pairs || tiling.position_step == tiling.positions));
        CHECK(tiling.position_begin <= gemm.position_begin);
        CHECK(tiling.position_begin + tiling.position_tiles * tiling.position_step >=
              gemm.position_begin + gemm.position_count);
        CHECK(tiling.grid % tiling.weight_tiles == 0);  // a block keeps its weights' columns
        CHECK((shape.element_bytes == 4 || carries || gemm.out_length % 16 == 0));
        CHECK((shape.element_bytes == 2 || tiling.stages * tiling.rings <= tensor_core::kStride1TilesAhead * tiling.count * 2));
        CHECK_FALSE(tiling.is_dynamic);
      }
    }
  }
  CHECK(fitting > 0);
  CHECK(pairs > 0);
  CHECK(odd > 0);
  CHECK(two_classes > 0);
  CHECK(carried > 0);
  CHECK(carried_halves > 0);
  ConvProblem strided = sized({.N = 1, .C_in = 128, .C_out = 128, .L_in = 640, .K = 3, .S = 2});
  const tensor_core::Stride1Shape shape{1, 128, 2, 4, 4480, 0, 0, 0, 0};
  CHECK(tensor_core::make_stride1_tiling(cuda::make_tap_gemm(strided, ConvDirection::forward), shape, 132, kSharedOfHopper)
            .count == 0);
}

TEST_CASE("rows where a block has many runs, which it draws, and more tiles to compute again than fit a list") {
  if (cuda::device_count() == 0 || cuda::properties(0).arch() != 90 || tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  const std::int64_t N = is_reduced() ? 2 : 3, length = is_reduced() ? 4096 : 90400;
  const ConvProblem carried = sized({.N = N, .C_in = 16, .C_out = 128, .L_in = length, .K = 3});
  const ConvProblem whole = sized({.N = N, .C_in = 16, .C_out = 128, .L_in = length, .K = 3, .P_l = 1, .P_r = 1});
  check_many_runs<float>(carried, Precision::tf32);
  check_many_runs<BFloat16>(carried, Precision::fp32);
  check_many_runs<float>(whole, Precision::fp32);
  check_many_runs<float>(whole, Precision::tf32);
  check_many_runs<Half>(whole, Precision::fp32);
}

TEST_CASE("problems with many tiles use the dynamic scheduler, those with few the static one") {
  const auto tiling = [](std::int64_t length, std::int64_t padding) {
    const ConvProblem p = sized({.N = 3, .C_in = 16, .C_out = 128, .L_in = length, .K = 3, .P_l = padding, .P_r = padding});
    return tensor_core::make_stride1_tiling(cuda::make_tap_gemm(p, ConvDirection::forward),
                                            {2, 128, 1, 4, 18048, 20480, 32, 0, 0}, 132, 227 * 1024);
  };
  for (const std::int64_t padding : {0, 1}) {
    CHECK((tiling(90400, padding).run > 1) == (padding == 0));
    CHECK(tiling(90400, padding).is_dynamic);
    CHECK_FALSE(tiling(4096, padding).is_dynamic);
  }
}
