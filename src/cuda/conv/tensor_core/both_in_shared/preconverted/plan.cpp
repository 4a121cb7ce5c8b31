#include <algorithm>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/choice/plan_cache.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kSlices[] = {1, 2, 3, 4, 6, 8, 12};

int parts_of(const ConvProblem& problem, Precision precision) {
  return problem.dtype == DType::f32 && precision != Precision::tf32 ? 2 : 1;
}

/// As many samples as keep the limit; 0 where one does not.
std::int64_t samples_that_fit(TapGemm form, const WideShape& shape, int slices, int sm_count, int shared_limit) {
  const auto limit = static_cast<std::int64_t>(conv_workspace_limit());
  for (;;) {
    const WideSteps steps = make_wide_steps(form, shape, slices, sm_count, shared_limit);
    if (steps.count != 0 && steps.source.bytes(form.G) + steps.partial_bytes <= limit) return form.N;
    if (form.N == 1) return 0;
    form.N = (form.N + 1) / 2;
  }
}

/// The first that takes hardly longer than the fastest: packed weights then serve other batches and lengths too.
std::vector<WideCandidate>::const_iterator best_of(const std::vector<WideCandidate>& all) {
  constexpr double kHardly = 1.02;
  const auto fastest =
      std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return std::find_if(all.begin(), all.end(),
                      [&](const WideCandidate& one) { return one.seconds <= kHardly * fastest->seconds; });
}

}  // namespace

std::vector<WideCandidate> wide_candidates(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                           int sm_count, int shared_limit) {
  TapGemm form = make_tap_gemm(problem, direction);
  const auto shapes = wide_shapes(parts_of(problem, precision));
  const auto bytes = static_cast<int>(size_of(problem.dtype));
  std::vector<WideCandidate> candidates;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (const int slices : kSlices) {
      form.N = problem.N;
      form.N = samples_that_fit(form, shapes[i], slices, sm_count, shared_limit);
      if (form.N == 0) continue;
      const WideSteps steps = make_wide_steps(form, shapes[i], slices, sm_count, shared_limit);
      if (steps.slices != slices) continue;
      const auto turns = static_cast<double>((problem.N + form.N - 1) / form.N);
      candidates.push_back(
          {WidePlan{static_cast<int>(i), form.N, steps}, turns * wide_seconds(form, steps, shapes[i], bytes, sm_count)});
    }
  }
  return candidates;
}

std::optional<WidePlan> make_wide_plan(const ConvProblem& problem, ConvDirection direction, Precision precision, int sm_count,
                                       int shared_limit) {
  const std::vector<WideCandidate> all = wide_candidates(problem, direction, precision, sm_count, shared_limit);
  const auto best = best_of(all);
  return best == all.end() ? std::nullopt : std::optional(best->plan);
}

std::optional<WidePlan> wide_plan(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  if (problem.N == 0) return std::nullopt;
  thread_local Remembered<ChoiceKey, std::optional<WidePlan>> remembered;  // some twenty microseconds of arithmetic
  return remembered.get({problem, direction, precision, device}, [&] {
    const DeviceProperties& gpu = properties(device);
    const auto make = uses_mma(gpu.arch()) ? make_mma_plan : make_wide_plan;
    return make(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block);
  });
}

std::optional<double> wide_seconds(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                   const DeviceProperties& gpu) {
  if (make_tap_gemm(problem, direction).rows < kLeastWideRows) return std::nullopt;
  const std::vector<WideCandidate> all =
      wide_candidates(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block);
  const auto best = best_of(all);
  return best == all.end() ? std::nullopt : std::optional(best->seconds);
}

FormKey wide_weight_key(const ConvProblem& problem, ConvDirection direction, Precision precision, const WidePlan& plan) {
  const WideSteps& steps = plan.steps;
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
          steps.source.taps_apart ? 1 : 0,
          steps.planes,
          steps.taps,
          steps.plane_steps,
          steps.tap_steps,
          steps.count,
          steps.column_tiles,
          steps.tile_columns,
          steps.usable,
          steps.packed_bytes};
}

std::int64_t wide_weight_bytes(const WidePlan& plan) { return kOperandHeaderBytes + plan.steps.packed_bytes; }

}  // namespace polyphase::cuda::tensor_core
