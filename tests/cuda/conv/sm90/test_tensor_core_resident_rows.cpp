#include "cuda/conv/sm90/tensor_core_resident_rows.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <type_traits>

#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core_forms.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"
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
