#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <type_traits>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// The rows form of a problem whose second sample, of f32, is too small for halves beside the others, so that all of its sums
/// are computed again: twice, against the reference.
template <class E>
void check_many_runs(ConvProblem p, Precision precision) {
  p.dtype = dtype_of<E>;
  ConvArrays<E> arrays(p, kSmallIntegers);
  if constexpr (std::is_same_v<E, float>)
    for (std::int64_t i = p.C_in * p.L_in; i < 2 * p.C_in * p.L_in; ++i) arrays.x[i] = std::ldexp(arrays.x[i], -40);
  const Array<E> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
  const auto by_rows = [&](const GpuCall& at) {
    tensor_core::gather_by(tensor_core::GatherForm::rows, {at.problem, at.direction, precision, at.first, at.second, at.bias,
                                                           at.out, cuda::Epilogue{}, 0, at.stream});
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
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::RowShape& shape :
           {tensor_core::RowShape{1, 128, 2, 4, 2304, 0, 0, 0, 0}, tensor_core::RowShape{1, 128, 2, 4, 2304, 0, 0, 12, 4},
            tensor_core::RowShape{2, 128, 1, 4, 18048, 20480, 32, 0, 0},
            tensor_core::RowShape{2, 128, 1, 2, 8832, 36864, 128, 4, 8},
            tensor_core::RowShape{2, 128, 1, 2, 8832, 36864, 128, 4, 2}}) {
        const tensor_core::RowSteps steps = tensor_core::make_row_steps(form, shape, 132, kSharedOfHopper);
        if (steps.count == 0) continue;
        ++fitting;
        pairs += steps.stores_pairs ? 1 : 0;
        odd += steps.parity == tensor_core::RowParity::odd ? 1 : 0;
        two_classes += steps.classes == 2 ? 1 : 0;
        const bool carries = steps.store_classes != 0;
        carried += carries && shape.element_bytes == 4 ? 1 : 0;
        carried_halves += carries && shape.element_bytes == 2 ? 1 : 0;
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK(steps.stages >= 2);
        CHECK(steps.rows * steps.count >= form.rows);
        CHECK(steps.span == steps.positions + form.taps - 1);
        CHECK(steps.pitch >= steps.span * shape.element_bytes);
        // No bank conflicts; boxes begin at multiples of 128 bytes.
        CHECK(steps.pitch % (steps.classes == 2 ? 64 : 32) == (steps.classes == 2 ? 32 : 16));
        CHECK(steps.stage_bytes % 256 == 0);
        CHECK((steps.classes == 0 || steps.classes * form.source_length * shape.element_bytes % 16 == 0));
        CHECK((!carries || steps.store_classes * form.out_length * shape.element_bytes % 32 == 0));
        CHECK((!carries || (form.out_origin + steps.position_begin) % 2 == 0));
        // Runs begin a sector early, both consumers have as many tiles of one, and what a row's last tile carries is no output.
        CHECK((carries ? steps.run % 2 == 0 && steps.last_run % 2 == 0 : steps.run == 1));
        CHECK((!carries || (steps.aligned * shape.element_bytes == 32 && steps.last_run <= steps.run &&
                            steps.position_begin + steps.aligned <= form.position_begin)));
        const std::int64_t reach = steps.position_begin + (steps.position_tiles - 1) * steps.position_step +
                                   steps.last_run * steps.positions - steps.aligned + 1;
        CHECK((!carries || reach >= form.position_begin + form.position_count));
        CHECK(steps.store_classes <= tensor_core::kStoreClassesMost);
        CHECK(steps.rings == (tensor_core::takes_turns(shape.parts, shape.element_bytes) ? 1 : 2));
        CHECK(steps.position_step <= steps.run * steps.positions);
        CHECK((!steps.stores_pairs || steps.position_step == steps.positions));
        CHECK(steps.position_begin <= form.position_begin);
        CHECK(steps.position_begin + steps.position_tiles * steps.position_step >= form.position_begin + form.position_count);
        CHECK(steps.grid % steps.weight_tiles == 0);  // a block keeps its columns
        CHECK((shape.element_bytes == 4 || carries || form.out_length % 16 == 0));
        CHECK((shape.element_bytes == 2 || steps.stages * steps.rings <= tensor_core::kRowTilesAhead * steps.count * 2));
        CHECK_FALSE(steps.is_drawn);
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
  const tensor_core::RowShape shape{1, 128, 2, 4, 4480, 0, 0, 0, 0};
  CHECK(tensor_core::make_row_steps(cuda::make_tap_gemm(strided, ConvDirection::forward), shape, 132, kSharedOfHopper).count ==
        0);
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

TEST_CASE("rows of many tiles are drawn, those of a few dealt out") {
  const auto steps = [](std::int64_t length, std::int64_t padding) {
    const ConvProblem p = sized({.N = 3, .C_in = 16, .C_out = 128, .L_in = length, .K = 3, .P_l = padding, .P_r = padding});
    return tensor_core::make_row_steps(cuda::make_tap_gemm(p, ConvDirection::forward), {2, 128, 1, 4, 18048, 20480, 32, 0, 0},
                                       132, 227 * 1024);
  };
  for (const std::int64_t padding : {0, 1}) {
    CHECK((steps(90400, padding).run > 1) == (padding == 0));
    CHECK(steps(90400, padding).is_drawn);
    CHECK_FALSE(steps(4096, padding).is_drawn);
  }
}
