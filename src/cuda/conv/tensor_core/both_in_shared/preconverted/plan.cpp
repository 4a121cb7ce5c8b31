#include <algorithm>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/plan_cache.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/operand/parts.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kSlices[] = {1, 2, 3, 4, 6, 8, 12};

/// As many samples as keep the limit; 0 where one does not.
std::int64_t samples_that_fit(TapGemm gemm, const PreconvertedShape& shape, int slices, int sm_count, int shared_limit) {
  const auto limit = static_cast<std::int64_t>(conv_workspace_limit());
  for (;;) {
    const PreconvertedTiling tiling = make_preconverted_tiling(gemm, shape, slices, sm_count, shared_limit);
    if (tiling.count != 0 && tiling.source.bytes(gemm.G) + tiling.partial_bytes <= limit) return gemm.N;
    if (gemm.N == 1) return 0;
    gemm.N = (gemm.N + 1) / 2;
  }
}

/// The first candidate that is hardly slower than the fastest, so that packed weights serve other batches and lengths too.
std::vector<PreconvertedCandidate>::const_iterator best_of(const std::vector<PreconvertedCandidate>& all) {
  constexpr double kHardly = 1.02;
  const auto fastest =
      std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return std::find_if(all.begin(), all.end(),
                      [&](const PreconvertedCandidate& one) { return one.seconds <= kHardly * fastest->seconds; });
}

}  // namespace

std::vector<PreconvertedCandidate> preconverted_candidates(const ConvProblem& problem, ConvDirection direction,
                                                           Precision precision, int sm_count, int shared_limit) {
  TapGemm gemm = make_tap_gemm(problem, direction);
  const auto shapes = preconverted_shapes(parts_of(problem, precision));
  const auto bytes = static_cast<int>(size_of(problem.dtype));
  std::vector<PreconvertedCandidate> candidates;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (const int slices : kSlices) {
      gemm.N = problem.N;
      gemm.N = samples_that_fit(gemm, shapes[i], slices, sm_count, shared_limit);
      if (gemm.N == 0) continue;
      const PreconvertedTiling tiling = make_preconverted_tiling(gemm, shapes[i], slices, sm_count, shared_limit);
      if (tiling.slices != slices) continue;
      const auto turns = static_cast<double>((problem.N + gemm.N - 1) / gemm.N);
      candidates.push_back({PreconvertedPlan{static_cast<int>(i), gemm.N, tiling},
                            turns * preconverted_cost(gemm, tiling, shapes[i], bytes, sm_count)});
    }
  }
  return candidates;
}

std::optional<PreconvertedPlan> make_preconverted_plan(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                       int sm_count, int shared_limit) {
  const std::vector<PreconvertedCandidate> all = preconverted_candidates(problem, direction, precision, sm_count, shared_limit);
  const auto best = best_of(all);
  return best == all.end() ? std::nullopt : std::optional(best->plan);
}

std::optional<PreconvertedPlan> preconverted_plan(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                  int device) {
  if (problem.N == 0) return std::nullopt;
  thread_local PlanCache<ChoiceKey, std::optional<PreconvertedPlan>> remembered;  // computing a plan takes about 20 us
  return remembered.get({problem, direction, precision, device}, [&] {
    const DeviceProperties& gpu = properties(device);
    const auto make = uses_mma(gpu.arch()) ? make_mma_plan : make_preconverted_plan;
    return make(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block);
  });
}

std::optional<double> preconverted_cost(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                        const DeviceProperties& gpu) {
  const std::vector<PreconvertedCandidate> all =
      preconverted_candidates(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block);
  const auto best = best_of(all);
  return best == all.end() ? std::nullopt : std::optional(best->seconds);
}

PackingKey preconverted_weight_key(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                   const PreconvertedPlan& plan) {
  const PreconvertedTiling& tiling = plan.tiling;
  return {static_cast<std::int64_t>(Algorithm::tensor_core),
          static_cast<std::int64_t>(direction),
          static_cast<std::int64_t>(problem.dtype),
          parts_of(problem, precision),
          problem.C_in,
          problem.C_out,
          problem.G,
          problem.K,
          problem.S,
          problem.D,
          tiling.source.taps_apart ? 1 : 0,
          tiling.planes,
          tiling.taps,
          tiling.plane_steps,
          tiling.tap_steps,
          tiling.count,
          tiling.column_tiles,
          tiling.tile_columns,
          tiling.usable,
          tiling.packed_bytes};
}

std::int64_t preconverted_weight_bytes(const PreconvertedPlan& plan) { return kOperandHeaderBytes + plan.tiling.packed_bytes; }

}  // namespace polyphase::cuda::tensor_core
