#include "cuda/conv/tensor_core/wgrad/wide/wide.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

bool has_wgmma() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90; }

/// Checks all tilings of the wide kernel and returns them. Some channels are far below the others.
std::vector<tensor_core::WgradTiling> check_wide_tiles(const ConvProblem& p, Precision precision) {
  ConvArrays<float> arrays(p, kSmallIntegers);
  for (std::int64_t i = 0; i < arrays.x.size(); ++i)
    if (i / p.L_in % p.C_in % 3 == 1) arrays.x[i] = std::ldexp(arrays.x[i], -60);
  const Array<float> expected = arrays.run(ConvDirection::wgrad, Algorithm::reference);
  CHECK(expected.norm() > 0);
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  const auto all = tensor_core::wide_wgrad_candidates(p, precision == Precision::fp32 ? 3 : 2, gpu.sm_count,
                                                      gpu.shared_bytes_per_block, conv_workspace_limit());
  for (const tensor_core::WgradTiling& tiling : all) {
    bool intact = false;
    const auto call = [&](const GpuCall& at) {
      tensor_core::wgrad_wide_by(tiling, at.problem, precision, at.first, at.second, at.out, 0, at.stream);
    };
    const Array<float> got = run_on_gpu(arrays, ConvDirection::wgrad, call, intact, true);
    CHECK_MESSAGE((intact && same_bits(got, expected)), p, ' ', precision, ", wide: ", tiling.shape.columns, " x ",
                  tiling.shape.shifts, tiling.swapped ? ", rows of y" : ", rows of x");
  }
  return all;
}

}  // namespace

TEST_CASE("small integers times powers of two, bit for bit: every tile") {
  if (!has_wgmma()) SKIP_TEST("no GPU of compute capability 9.0");
  std::set<std::pair<int, int>> shapes;
  for (const std::int64_t more : {0, 1})
    for (const ConvProblem& p :
         {sized({.N = 3, .C_in = 136, .C_out = 72, .L_in = 200 + more, .K = 3, .P_l = 1, .P_r = 1}),
          sized({.N = 3, .C_in = 40, .C_out = 48, .L_in = 304 + more, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
          sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 9000 + 4 * more, .K = 5, .P_l = 2, .P_r = 2, .G = 2})})
      for (const Precision precision : {Precision::fp32, Precision::tf32})
        for (const tensor_core::WgradTiling& tiling : check_wide_tiles(p, precision))
          shapes.emplace(tiling.shape.columns, tiling.shape.shifts);
  CHECK(shapes.size() == std::size(tensor_core::kWgradWideShapes));
}

TEST_CASE("channels of very different magnitudes are left to the wide kernel as a whole; equal ones are not") {
  if (!has_wgmma()) SKIP_TEST("no GPU of compute capability 9.0");
  // Samples that are the tensors, and samples of them.
  for (const ConvProblem& p : {sized({.N = 2, .C_in = 64, .C_out = 48, .L_in = 700, .K = 3, .P_l = 1, .P_r = 1}),
                               sized({.N = 3, .C_in = 128, .C_out = 32, .L_in = 4096, .K = 4, .S = 2, .P_l = 1, .P_r = 1})}) {
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      for (const bool is_mixed : {false, true}) {
        ConvArrays<float> arrays(p, kSmallIntegers);
        for (std::int64_t i = 0; is_mixed && i < arrays.x.size(); ++i)
          arrays.x[i] = std::ldexp(arrays.x[i], static_cast<int>(-9 * (i / p.L_in % p.C_in % 8)));
        const std::uint64_t before = cuda::computed_again();
        bool intact = false;
        const Array<float> got =
            run_on_gpu(arrays, ConvDirection::wgrad, by_algorithm(Algorithm::tensor_core, precision), intact, true);
        const auto again = static_cast<std::int64_t>(cuda::computed_again() - before);
        CHECK((intact && same_bits(got, arrays.run(ConvDirection::wgrad, Algorithm::reference))));
        CHECK_MESSAGE(again == (is_mixed ? p.C_in * p.C_out * p.K : 0), p, ' ', precision);
      }
    }
  }
}

TEST_CASE("log-uniform magnitudes, and single numbers far above all others: as accurate as the precision") {
  if (!has_wgmma()) SKIP_TEST("no GPU of compute capability 9.0");
  const ConvProblem p = sized({.N = 4, .C_in = 48, .C_out = 32, .L_in = 5000, .K = 3, .P_l = 1, .P_r = 1});
  for (const bool is_outlier : {false, true}) {
    ConvArrays<float> arrays(p, kNormal);
    for (std::int64_t i = 0; i < arrays.x.size(); ++i)
      if (!is_outlier) arrays.x[i] = std::ldexp(arrays.x[i], -static_cast<int>(i * 2654435761 % 100));
    if (is_outlier) arrays.x[3 * p.L_in + 77] = 1e10F;
    const std::vector<double> exact = arrays.formula<double>(ConvDirection::wgrad);
    ConvArrays<float> magnitudes = arrays;
    for (std::int64_t i = 0; i < arrays.x.size(); ++i) magnitudes.x[i] = std::abs(arrays.x[i]);
    for (std::int64_t i = 0; i < arrays.y.size(); ++i) magnitudes.y[i] = std::abs(arrays.y[i]);
    const std::vector<double> all = magnitudes.formula<double>(ConvDirection::wgrad);
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      const std::uint64_t before = cuda::computed_again();
      bool intact = false;
      const Array<float> got =
          run_on_gpu(arrays, ConvDirection::wgrad, by_algorithm(Algorithm::tensor_core, precision), intact, true);
      CHECK(static_cast<std::int64_t>(cuda::computed_again() - before) >= got.size() / 8);
      double worst = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double error = std::abs(static_cast<double>(got[static_cast<std::int64_t>(i)]) - exact[i]) / all[i];
        worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
      }
      CHECK_MESSAGE(worst <= (precision == Precision::fp32 ? 0x1p-20 : 0x1p-12), precision, ": ", worst);
    }
  }
}
