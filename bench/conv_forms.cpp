#include "conv_forms.hpp"

#include <map>
#include <memory>

#include "conv/workspace.hpp"
#include "cuda/conv/direct/direct.hpp"
#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

using cuda::tensor_core::GatherKernel;

/// Source and result of a direction.
struct Ends {
  const void* source;
  void* out;
};
Ends ends_of(Sets::Set& set, ConvDirection direction) {
  const DeviceOperands at = set.operands(direction);
  return direction == ConvDirection::forward ? Ends{at.x, at.y} : Ends{at.y, at.x};
}

std::string name_of(const cuda::tensor_core::PreconvertedPlan& plan) {
  return concat("preconverted ", plan.shape, " in ", plan.tiling.slices);
}

/// Every tile of the direct kernels except the chosen one.
std::vector<Form> direct_forms(const ConvProblem& problem, ConvDirection direction, cudaStream_t stream) {
  using namespace cuda::direct;
  const cuda::TapGemm gemm = cuda::make_tap_gemm(problem, direction);
  const std::size_t chosen = choose(kTiles32, gemm, cuda::properties(0).sm_count, true).tile;
  std::vector<Form> forms;
  for (std::size_t tile = 0; tile < kTiles32.size(); ++tile) {
    if (tile == chosen || most_slices(gemm, kTiles32[tile], true) == 0) continue;
    forms.push_back({concat("tile ", tile), [=](Sets::Set& set) {
                       const Ends at = ends_of(set, direction);
                       gather(problem, direction, at.source, set.w.raw(), nullptr, at.out, {}, 0, stream,
                              static_cast<int>(tile));
                     }});
  }
  return forms;
}

/// Every plan of the preconverted kernel except `chosen`. Each set's weights are packed, as for the chosen plan: one packed
/// copy for all sets would stay in the L2, and only some sets have weights that are too small to be split.
void add_preconverted(const ConvProblem& problem, ConvDirection direction, Precision precision, const std::string& chosen,
                      Sets& sets, cudaStream_t stream, std::vector<Form>& forms) {
  using namespace cuda::tensor_core;
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  for (const PreconvertedCandidate& candidate :
       preconverted_candidates(problem, direction, precision, gpu.sm_count, gpu.shared_bytes_per_block)) {
    const PreconvertedPlan& plan = candidate.plan;
    if (name_of(plan) == chosen) continue;
    const auto packed = std::make_shared<std::map<const void*, cuda::Buffer>>();
    for (int i = 0; i < sets.size(); ++i) {
      const void* weights = sets.at(i).w.raw();
      cuda::Buffer& own =
          packed->try_emplace(weights, static_cast<std::size_t>(preconverted_weight_bytes(plan)), 0).first->second;
      preconverted_pack_weights(problem, direction, precision, plan, weights, own.as<void>(), stream);
    }
    forms.push_back({name_of(plan), [=](Sets::Set& set) {
                       const Ends at = ends_of(set, direction);
                       const void* weights = set.w.raw();
                       preconverted_gather(problem, direction, precision, plan, at.source, {}, weights,
                                           packed->at(weights).as<void>(), nullptr, at.out, {}, 0, stream);
                     }});
  }
}

std::vector<Form> tensor_core_forms(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                    const std::string& chosen, Sets& sets, cudaStream_t stream) {
  using namespace cuda::tensor_core;
  std::vector<Form> forms;
  const Ends first = ends_of(sets.at(0), direction);
  for (const GatherKernel kernel : kGatherKernels) {
    if (kernel == GatherKernel::preconverted) add_preconverted(problem, direction, precision, chosen, sets, stream, forms);
    if (cuda::tensor_core::name_of(kernel) == chosen) continue;
    if (!cost_counts(kernel, {problem, direction, precision, cuda::alignment_of(first.source, first.out)}, cuda::properties(0)))
      continue;
    forms.push_back({std::string(cuda::tensor_core::name_of(kernel)), [=](Sets::Set& set) {
                       const Ends at = ends_of(set, direction);
                       const cuda::Weights weights(set.w.raw(), set.w.storage());
                       gather_by(kernel, {problem, direction, precision, at.source, weights, nullptr, at.out, {}, 0, stream});
                     }});
  }
  return forms;
}

/// The weight gradient's tilings.
std::string name_of(const cuda::tensor_core::WgradTiling& tiling) {
  if (tiling.stages == 0) return "mma_sync";
  return concat("rows ", tiling.shape.columns, 'x', tiling.shape.shifts, tiling.swapped ? " of y" : " of x");
}

/// Operand parts and bytes of an element, for make_wgrad_tiling().
struct WgradKind {
  int parts, bytes;
};
WgradKind wgrad_kind(const ConvProblem& problem, Precision precision) {
  const bool is_f32 = problem.dtype == DType::f32;
  return {is_f32 && precision != Precision::tf32 ? 2 : 1, is_f32 ? 4 : 2};
}

std::vector<Form> wgrad_forms(const ConvProblem& problem, Precision precision, const std::string& chosen, cudaStream_t stream) {
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  const auto [parts, bytes] = wgrad_kind(problem, precision);
  std::vector<Form> forms;
  for (const auto& tiling : cuda::tensor_core::wgrad_candidates(problem, parts, bytes, gpu.sm_count, gpu.shared_bytes_per_block,
                                                                conv_workspace_limit())) {
    if (name_of(tiling) == chosen) continue;
    forms.push_back({name_of(tiling), [=](Sets::Set& set) {
                       cuda::tensor_core::wgrad_by(tiling, problem, precision, set.x.raw(), set.dy.raw(), set.dw.raw(), 0,
                                                   stream);
                     }});
  }
  return forms;
}

}  // namespace

std::string chosen_kernel(const ConvProblem& problem, ConvDirection direction, Algorithm chosen, Precision precision) {
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  if (chosen != Algorithm::tensor_core || cuda::tensor_core::uses_mma(gpu.arch())) return std::string(name_of(chosen));
  if (direction == ConvDirection::wgrad) {
    const auto [parts, bytes] = wgrad_kind(problem, precision);
    return name_of(cuda::tensor_core::make_wgrad_tiling(problem, parts, bytes, gpu.sm_count, gpu.shared_bytes_per_block,
                                                        conv_workspace_limit()));
  }
  const auto kernel = cuda::tensor_core::chosen_kernel({problem, direction, precision}, 0);
  if (!kernel) return std::string(name_of(chosen));
  if (kernel->kernel != GatherKernel::preconverted) return std::string(cuda::tensor_core::name_of(kernel->kernel));
  return name_of(*cuda::tensor_core::preconverted_plan(problem, direction, precision, 0));
}

std::vector<Form> other_forms(const ConvProblem& problem, ConvDirection direction, Algorithm chosen, Precision precision,
                              Sets& sets, cudaStream_t stream) {
  if (chosen == Algorithm::tensor_core && !cuda::tensor_core::uses_mma(cuda::properties(0).arch())) {
    const std::string own = chosen_kernel(problem, direction, chosen, precision);
    return direction == ConvDirection::wgrad ? wgrad_forms(problem, precision, own, stream)
                                             : tensor_core_forms(problem, direction, precision, own, sets, stream);
  }
  if (direction == ConvDirection::wgrad) return {};
  if (chosen == Algorithm::direct && problem.dtype == DType::f32) return direct_forms(problem, direction, stream);
  return {};
}

}  // namespace polyphase::bench
