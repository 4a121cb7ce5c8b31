#include "conv_forms.hpp"

#include <memory>

#include "cuda/conv/direct.hpp"
#include "cuda/conv/direct_steps.hpp"
#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_phases.hpp"
#include "cuda/conv/sm90/tensor_core_resident.hpp"
#include "cuda/conv/sm90/tensor_core_units.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"
#include "cuda/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

/// Source and result of a direction.
struct Ends {
  const void* source;
  void* out;
};
Ends ends_of(Sets::Set& set, ConvDirection direction) {
  const DeviceOperands at = set.operands(direction);
  return direction == ConvDirection::forward ? Ends{at.x, at.y} : Ends{at.y, at.x};
}

/// Every tile of the direct kernels but the one that they choose.
std::vector<Form> direct_forms(const ConvProblem& problem, ConvDirection direction, cudaStream_t stream) {
  using namespace cuda::direct;
  const cuda::TapGemm form = cuda::make_tap_gemm(problem, direction);
  const std::size_t chosen = choose(kTiles32, form, cuda::properties(0).sm_count, true).tile;
  std::vector<Form> forms;
  for (std::size_t tile = 0; tile < kTiles32.size(); ++tile) {
    if (tile == chosen || most_slices(form, kTiles32[tile], true) == 0) continue;
    forms.push_back({concat("tile ", tile), [=](Sets::Set& set) {
                       const Ends at = ends_of(set, direction);
                       gather(problem, direction, at.source, set.w.raw(), nullptr, at.out, {}, 0, stream,
                              static_cast<int>(tile));
                     }});
  }
  return forms;
}

/// Every plan of the wide form and the form with resident weights, where they fit and are not what is chosen.
std::vector<Form> tensor_core_forms(const ConvProblem& problem, ConvDirection direction, Precision precision, Sets& sets,
                                    cudaStream_t stream) {
  using namespace cuda::tensor_core;
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  std::vector<Form> forms;
  if (uses_mma(gpu.arch()) || can_implement(problem, direction, precision, 0)) return forms;
  const bool by_phases = phases_fit(problem, direction, precision, 0),
             by_units = !by_phases && units_pay(problem, direction, precision, 0);
  const auto chosen = by_phases || by_units ? std::nullopt : wide_plan_that_pays(problem, direction, precision, 0);
  const cuda::Weights weights(sets.at(0).w.raw(), sets.at(0).w.storage());
  for (const WideCandidate& candidate :
       wide_candidates(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block)) {
    const WidePlan& plan = candidate.plan;
    if (chosen && plan.shape == chosen->shape && plan.steps.slices == chosen->steps.slices) continue;
    const auto packed = std::make_shared<cuda::Buffer>(static_cast<std::size_t>(wide_weight_bytes(plan)), 0);
    wide_pack_weights(problem, direction, precision, plan, weights.data(), packed->as<void>(), stream);
    forms.push_back({concat("wide ", plan.shape, " in ", plan.steps.slices), [=](Sets::Set& set) {
                       const Ends at = ends_of(set, direction);
                       wide_gather(problem, direction, precision, plan, at.source, weights.data(), packed->as<void>(), nullptr,
                                   at.out, {}, 0, stream);
                     }});
  }
  if ((by_phases || by_units || chosen) && resident_fits(problem, direction, precision, 0))
    forms.push_back({"resident", [=](Sets::Set& set) {
                       const Ends at = ends_of(set, direction);
                       resident_gather(problem, direction, at.source, weights, nullptr, at.out, {}, precision, 0, stream);
                     }});
  return forms;
}

}  // namespace

std::vector<Form> other_forms(const ConvProblem& problem, ConvDirection direction, Algorithm chosen, Precision precision,
                              Sets& sets, cudaStream_t stream) {
  if (direction == ConvDirection::wgrad) return {};
  if (chosen == Algorithm::tensor_core) return tensor_core_forms(problem, direction, precision, sets, stream);
  if (chosen == Algorithm::direct && problem.dtype == DType::f32) return direct_forms(problem, direction, stream);
  return {};
}

}  // namespace polyphase::bench
