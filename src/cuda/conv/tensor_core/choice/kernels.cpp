#include "cuda/conv/tensor_core/choice/kernels.hpp"

#include <algorithm>
#include <ostream>

#include "conv/workspace.hpp"
#include "cuda/conv/plan_cache.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/phased_stride2.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/source_tma_16bit.hpp"
#include "cuda/conv/tensor_core/wgrad/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kLeastChannels = 8;

std::optional<KernelCandidate> choose(const KernelProblem& asked, int device) {
  const DeviceProperties& gpu = properties(device);
  if (!uses_mma(gpu.arch())) {
    const std::vector<KernelCandidate> all = gather_kernels(asked, gpu);
    return all.empty() ? std::nullopt : std::optional(all.front());
  }
  if (!preconverted_plan(asked.problem, asked.direction, asked.precision, device)) return std::nullopt;
  return KernelCandidate{GatherKernel::preconverted, 0};
}

void preconverted_by_plan(const Gather& call) {
  const ConvProblem problem = call.problem;
  const ConvDirection direction = call.direction;
  const Precision precision = call.precision;
  const auto plan = preconverted_plan(problem, direction, precision, call.device);
  const auto pack = [problem, direction, precision, plan](const void* from, void* to, cudaStream_t on) {
    preconverted_pack_weights(problem, direction, precision, *plan, from, to, on);
  };
  const auto packed =
      call.weights.packed(preconverted_weight_key(problem, direction, precision, *plan),
                          static_cast<std::size_t>(preconverted_weight_bytes(*plan)), call.device, call.stream, pack);
  preconverted_gather(problem, direction, precision, *plan, call.source, call.weights.data(), packed->as<void>(), call.bias,
                      call.out, call.epilogue, call.device, call.stream);
}

}  // namespace

std::string_view name_of(GatherKernel kernel) {
  constexpr std::string_view kNames[] = {"phased_stride2", "phased_stride4", "preconverted", "source_tma_16bit",
                                         "source_tma",     "source_bulk",    "stride1",      "stationary"};
  return kNames[static_cast<int>(kernel)];
}

std::vector<KernelCandidate> gather_kernels(const KernelProblem& asked, const DeviceProperties& gpu) {
  std::vector<KernelCandidate> all;
  for (const GatherKernel kernel : kGatherKernels)
    if (const auto seconds = kernel_cost(kernel, asked, gpu)) all.push_back({kernel, *seconds});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return all;
}

std::optional<KernelCandidate> chosen_kernel(const KernelProblem& asked, int device) {
  struct Key {
    ChoiceKey call;
    std::uintptr_t source, out;  // places in a sector
    bool operator==(const Key&) const = default;
  };
  thread_local PlanCache<Key, std::optional<KernelCandidate>> remembered;
  const Key key{
      {asked.problem, asked.direction, asked.precision, device}, place_in_sector(asked.source), place_in_sector(asked.out)};
  return remembered.get(key, [&] { return choose(asked, device); });
}

void gather_by(GatherKernel kernel, const Gather& call) {
  switch (kernel) {
    case GatherKernel::phased_stride2:
      return phased_stride2_gather(call);
    case GatherKernel::phased_stride4:
      return phased_stride4_gather(call);
    case GatherKernel::preconverted:
      return preconverted_by_plan(call);
    case GatherKernel::source_tma_16bit:
      return source_tma_16bit_gather(call);
    case GatherKernel::source_tma:
      return source_tma_gather(call);
    case GatherKernel::source_bulk:
      return source_bulk_gather(call);
    case GatherKernel::stride1:
      return stride1_gather(call);
    case GatherKernel::stationary:
      return stationary_gather(call);
  }
}

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  const DeviceProperties& gpu = properties(device);
  if (gpu.arch() < 80)
    return concat("it needs a GPU of compute capability 8.0 or later, cuda:", device, " has ", gpu.major, '.', gpu.minor);
  if (problem.dtype == DType::f64) return "there are no tensor cores for f64 convolutions here";
  if (problem.dtype == DType::f32 && precision == Precision::ieee) return "precision ieee wants unrounded products";
  const std::int64_t in = problem.channels_in_per_group(), out = problem.channels_out_per_group();
  if (in < kLeastChannels || out < kLeastChannels)
    return concat("it needs ", kLeastChannels, " channels a group on both sides, got ", in, " and ", out);
  const int shared = gpu.shared_bytes_per_block;
  const bool is_mma = uses_mma(gpu.arch());
  if (direction == ConvDirection::wgrad)
    return is_mma ? mma_wgrad_problem(problem, precision, gpu.sm_count, shared) : wgrad_problem(problem, gpu.sm_count, shared);
  if (problem.N == 0 || chosen_kernel({problem, direction, precision}, device)) return std::nullopt;
  return concat("no tile of it fits ", shared, " bytes of shared memory, or one sample no workspace of ",
                conv_workspace_limit(), " bytes");
}

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights, const void* bias,
            void* out, const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream) {
  if (problem.N == 0) return;
  const auto chosen = chosen_kernel({problem, direction, precision, source, out}, device);
  require<NotImplemented>(chosen.has_value(), "conv tensor_core: expected a problem that can_implement() allows, got ",
                          problem);
  gather_by(chosen->kernel, {problem, direction, precision, source, weights, bias, out, epilogue, device, stream});
}

}  // namespace polyphase::cuda::tensor_core
