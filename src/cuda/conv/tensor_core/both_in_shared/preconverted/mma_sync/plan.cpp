#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/runtime/presence.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kSlices[] = {1, 2, 3, 4, 6, 8, 12};

bool is_asked_for() {
  static const bool asked = [] {
    const char* value = std::getenv("POLYPHASE_TENSOR_CORE");
    return value != nullptr && std::string_view(value) == "sm80";
  }();
  return asked;
}

/// Of as many samples as keep the workspace's limit, in turns of about as many; count == 0 where one does not.
WideSteps steps_that_fit(TapGemm& form, const MmaShape& shape, int parts, int element_bytes, int slices, int sm_count,
                         int shared_limit) {
  const auto limit = static_cast<std::int64_t>(conv_workspace_limit());
  const std::int64_t all = form.N;
  for (;;) {
    const WideSteps steps = make_mma_steps(form, shape, parts, element_bytes, slices, sm_count, shared_limit);
    const std::int64_t bytes = steps.source.bytes(form.G) + steps.partial_bytes;
    if (steps.count != 0 && bytes <= limit) return steps;
    if (form.N == 1) return {};
    const double share = steps.count == 0 ? 0.5 : static_cast<double>(limit) / static_cast<double>(bytes);
    const auto most = static_cast<std::int64_t>(static_cast<double>(form.N) * share);
    form.N = std::clamp<std::int64_t>(most, 1, form.N - 1);
    const std::int64_t turns = (all + form.N - 1) / form.N;
    form.N = (all + turns - 1) / turns;
  }
}

}  // namespace

bool uses_mma(int arch) {
  if (arch != 90) return arch >= 80;
  static const bool has_wgmma = built_archs().find("90a") != std::string_view::npos;
  return !has_wgmma || is_asked_for();
}

std::optional<WidePlan> make_mma_plan(const ConvProblem& problem, ConvDirection direction, Precision precision, int sm_count,
                                      int shared_limit) {
  TapGemm form = make_tap_gemm(problem, direction);
  if (form.N == 0) return std::nullopt;
  const bool is_f32 = problem.dtype == DType::f32;
  const int parts = is_f32 && precision != Precision::tf32 ? 2 : 1, element_bytes = is_f32 ? 4 : 2;
  const auto shapes = mma_shapes(parts);
  std::optional<WidePlan> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (const int slices : kSlices) {
      form.N = problem.N;
      const WideSteps steps = steps_that_fit(form, shapes[i], parts, element_bytes, slices, sm_count, shared_limit);
      if (steps.count == 0 || steps.slices != slices) continue;
      const auto turns = static_cast<double>((problem.N + form.N - 1) / form.N);
      const double cycles = turns * mma_cycles(form, steps, shapes[i], sm_count);
      if (cycles >= least) continue;
      least = cycles;
      best = WidePlan{static_cast<int>(i), form.N, steps, true};
    }
  }
  return best;
}

}  // namespace polyphase::cuda::tensor_core
