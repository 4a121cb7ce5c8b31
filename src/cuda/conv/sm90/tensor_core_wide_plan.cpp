#include <algorithm>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core_resident.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"
#include "cuda/runtime.hpp"

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

/// Whether columns or products are many enough for converting the source beforehand to pay. Numbers of 16 bits are only moved:
/// at kLeastWideProducts that costs as much as what it saves, where the weights can stay in shared memory.
bool converting_pays(const TapGemm& form, const ConvProblem& problem, ConvDirection direction, Precision precision,
                     int device) {
  const std::int64_t products = form.rows * form.planes * form.taps;
  if (form.columns >= kLeastWideColumns || products > kLeastWideProducts) return true;
  if (products < kLeastWideProducts) return false;
  return problem.dtype == DType::f32 || !resident_fits(problem, direction, precision, device);
}

/// A plan is some twenty microseconds of arithmetic: a thread keeps its last ones.
struct Known {
  ConvProblem problem;
  ConvDirection direction;
  Precision precision;
  int device;
  std::size_t limit;
  std::optional<WidePlan> plan;
  [[nodiscard]] bool is_for(const Known& other) const {
    return problem == other.problem && direction == other.direction && precision == other.precision && device == other.device &&
           limit == other.limit;
  }
};
constexpr std::size_t kKnownMost = 64;

}  // namespace

std::vector<WideCandidate> wide_candidates(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                           int sm_count, int shared_limit) {
  TapGemm form = make_tap_gemm(problem, direction);
  const auto shapes = wide_shapes(parts_of(problem, precision));
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
          {WidePlan{static_cast<int>(i), form.N, steps}, turns * wide_cycles(form, steps, shapes[i], sm_count)});
    }
  }
  return candidates;
}

std::optional<WidePlan> make_wide_plan(const ConvProblem& problem, ConvDirection direction, Precision precision, int sm_count,
                                       int shared_limit) {
  const std::vector<WideCandidate> all = wide_candidates(problem, direction, precision, sm_count, shared_limit);
  const auto best = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.cycles < b.cycles; });
  return best == all.end() ? std::nullopt : std::optional(best->plan);
}

std::optional<WidePlan> wide_plan_that_pays(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                            int device) {
  const TapGemm form = make_tap_gemm(problem, direction);
  const bool has_gaps = form.full_classes < form.classes || form.full_planes < form.planes;
  const bool is_only_one = has_gaps && (problem.dtype == DType::f16 || problem.dtype == DType::bf16);
  const DeviceProperties& gpu = properties(device);
  const bool is_mma = uses_mma(gpu.arch());
  if (form.N == 0 || (!is_mma && form.rows < kLeastWideRows)) return std::nullopt;
  if (!is_mma && !is_only_one && !converting_pays(form, problem, direction, precision, device)) return std::nullopt;
  thread_local std::vector<Known> known;
  const Known wanted{problem, direction, precision, device, conv_workspace_limit(), std::nullopt};
  const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) { return one.is_for(wanted); });
  if (found != known.end()) return found->plan;
  if (known.size() == kKnownMost) known.erase(known.begin());
  known.push_back(wanted);
  const auto make = is_mma ? make_mma_plan : make_wide_plan;
  known.back().plan = make(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block);
  return known.back().plan;
}

std::optional<double> wide_seconds(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  constexpr double kClock = 1.7e9, kBandwidth = 3e12, kLaunches = 8e-6;  // measured on an H200 of 132 multiprocessors
  if (direction == ConvDirection::wgrad) return std::nullopt;
  const auto plan = wide_plan_that_pays(problem, direction, precision, device);
  if (!plan || plan->is_mma) return std::nullopt;
  TapGemm form = make_tap_gemm(problem, direction);
  const auto element = static_cast<double>(size_of(problem.dtype));
  const double in = element * static_cast<double>(form.N * form.G * form.rows * form.source_length);
  const double out = element * static_cast<double>(form.N * form.G * form.out_channels * form.out_length);
  const auto turns = static_cast<double>((form.N + plan->samples - 1) / plan->samples);
  const double operand = turns * static_cast<double>(plan->steps.source.bytes(form.G));
  form.N = plan->samples;
  const WideShape& shape = wide_shapes(parts_of(problem, precision))[static_cast<std::size_t>(plan->shape)];
  const int sm_count = properties(device).sm_count;
  const double multiply = turns * wide_cycles(form, plan->steps, shape, sm_count) / kClock;
  const double bandwidth = kBandwidth * sm_count / 132;
  return std::max(multiply, (operand + out) / bandwidth) + (in + operand) / bandwidth + turns * kLaunches;
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
