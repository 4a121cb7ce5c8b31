#include <algorithm>
#include <limits>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/operand/parts.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kSlices[] = {1, 2, 3, 4, 6, 8, 12};

/// Tiling for as many samples as fit in the workspace limit, in passes of about equal size; count == 0 if one sample does not
/// fit.
PreconvertedTiling steps_that_fit(TapGemm& gemm, const MmaShape& shape, int parts, int element_bytes, int slices, int sm_count,
                                  int shared_limit) {
  const auto limit = static_cast<std::int64_t>(conv_workspace_limit());
  const std::int64_t all = gemm.N;
  for (;;) {
    const PreconvertedTiling tiling = make_mma_tiling(gemm, shape, parts, element_bytes, slices, sm_count, shared_limit);
    const std::int64_t bytes = tiling.source.bytes(gemm.G) + tiling.partial_bytes;
    if (tiling.count != 0 && bytes <= limit) return tiling;
    if (gemm.N == 1) return {};
    const double share = tiling.count == 0 ? 0.5 : static_cast<double>(limit) / static_cast<double>(bytes);
    const auto most = static_cast<std::int64_t>(static_cast<double>(gemm.N) * share);
    gemm.N = std::clamp<std::int64_t>(most, 1, gemm.N - 1);
    const std::int64_t turns = (all + gemm.N - 1) / gemm.N;
    gemm.N = (all + turns - 1) / turns;
  }
}

}  // namespace

std::optional<PreconvertedPlan> make_mma_plan(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                              int sm_count, int shared_limit) {
  TapGemm gemm = make_tap_gemm(problem, direction);
  if (gemm.N == 0) return std::nullopt;
  const int parts = parts_of(problem, precision), element_bytes = static_cast<int>(size_of(problem.dtype));
  const auto shapes = mma_shapes(parts);
  std::optional<PreconvertedPlan> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (const int slices : kSlices) {
      gemm.N = problem.N;
      const PreconvertedTiling tiling = steps_that_fit(gemm, shapes[i], parts, element_bytes, slices, sm_count, shared_limit);
      if (tiling.count == 0 || tiling.slices != slices) continue;
      const auto turns = static_cast<double>((problem.N + gemm.N - 1) / gemm.N);
      const double cycles = turns * mma_cycles(gemm, tiling, shapes[i], sm_count);
      if (cycles >= least) continue;
      least = cycles;
      best = PreconvertedPlan{static_cast<int>(i), gemm.N, tiling, true};
    }
  }
  return best;
}

}  // namespace polyphase::cuda::tensor_core
