#include "cuda/conv/tensor_core/choice/kernels.hpp"

#include <algorithm>
#include <iterator>
#include <ostream>

#include "conv/workspace.hpp"
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

/// In the order of GatherKernel.
constexpr const KernelEntry* kEntries[] = {&kPhasedStride2, &kPhasedStride4, &kPreconverted, &kSourceTma16bit,
                                           &kSourceTma,     &kSourceBulk,    &kStride1,      &kStationary};
static_assert(std::size(kEntries) == std::size(kGatherKernels));

const CostRates& rates_of(const KernelEntry& entry, const KernelProblem& asked) {
  if (asked.problem.dtype != DType::f32) return entry.rates.half;
  return asked.precision == Precision::tf32 ? entry.rates.tf32 : entry.rates.fp32;
}

}  // namespace

const KernelEntry& entry_of(GatherKernel kernel) { return *kEntries[static_cast<int>(kernel)]; }

std::optional<CostCounts> cost_counts(GatherKernel kernel, const KernelProblem& asked, const DeviceProperties& gpu) {
  const KernelEntry& entry = entry_of(kernel);
  if (asked.problem.N == 0 || entry.counts == nullptr) return std::nullopt;
  return entry.counts(asked, make_tap_gemm(asked.problem, asked.direction), gpu);
}

std::optional<double> kernel_cost(GatherKernel kernel, const KernelProblem& asked, const DeviceProperties& gpu) {
  const KernelEntry& entry = entry_of(kernel);
  if (asked.problem.N == 0) return std::nullopt;
  if (entry.seconds != nullptr) return entry.seconds(asked, gpu);
  const auto counts = cost_counts(kernel, asked, gpu);
  return counts ? std::optional(cost_seconds(*counts, rates_of(entry, asked), gpu)) : std::nullopt;
}

std::vector<KernelCandidate> gather_kernels(const KernelProblem& asked, const DeviceProperties& gpu) {
  std::vector<KernelCandidate> all;
  for (const GatherKernel kernel : kGatherKernels)
    if (const auto seconds = kernel_cost(kernel, asked, gpu)) all.push_back({kernel, *seconds});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return all;
}

std::optional<KernelCandidate> chosen_kernel(const KernelProblem& asked, int device) {
  const DeviceProperties& gpu = properties(device);
  if (!uses_mma(gpu.arch())) {
    const std::vector<KernelCandidate> all = gather_kernels(asked, gpu);
    return all.empty() ? std::nullopt : std::optional(all.front());
  }
  if (!preconverted_plan(asked.problem, asked.direction, asked.precision, device)) return std::nullopt;
  return KernelCandidate{GatherKernel::preconverted, 0};
}

bool fuses(GatherKernel kernel, const KernelProblem& asked, const Epilogue& epilogue, int device) {
  if (uses_mma(properties(device).arch())) return asked.problem.dtype == DType::f32 && tells_sum(epilogue);
  return entry_of(kernel).fuses(asked, epilogue, device);
}

bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device) {
  const auto chosen = chosen_kernel(asked, device);
  return chosen && fuses(chosen->kernel, asked, epilogue, device);
}

std::string tiling_text(GatherKernel kernel, const KernelProblem& asked, int device) {
  const auto counts = cost_counts(kernel, asked, properties(device));
  if (counts) return concat(counts->tiles, " tiles a block, ", counts->column_tiles, " of columns");
  const auto plan = preconverted_plan(asked.problem, asked.direction, asked.precision, device);
  if (!plan) return "no tiling";
  return concat("tiles of ", plan->tiling.tile_columns, " columns, ", plan->tiling.slices, " slices, ", plan->samples,
                " samples at a time");
}

void gather_by(GatherKernel kernel, const Gather& call) { entry_of(kernel).gather(call); }

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  const DeviceProperties& gpu = properties(device);
  if (gpu.arch() < 80)
    return concat("it needs a GPU of compute capability 8.0 or later, cuda:", device, " has ", gpu.major, '.', gpu.minor);
  if (problem.dtype == DType::f64) return "there are no tensor cores for f64 convolutions here";
  if (problem.dtype == DType::f32 && precision == Precision::ieee) return "precision ieee needs unrounded products";
  const std::int64_t in = problem.channels_in_per_group(), out = problem.channels_out_per_group();
  if (in < kLeastChannels || out < kLeastChannels)
    return concat("it needs ", kLeastChannels, " channels a group on both sides, got ", in, " and ", out);
  const int shared = gpu.shared_bytes_per_block;
  const bool is_mma = uses_mma(gpu.arch());
  if (direction == ConvDirection::wgrad) {
    if (!is_mma && has_wgrad_tiling(problem, precision, gpu.sm_count, shared)) return std::nullopt;
    return mma_wgrad_problem(problem, precision, gpu.sm_count, shared);
  }
  if (problem.N == 0 || chosen_kernel({problem, direction, precision}, device)) return std::nullopt;
  return concat("no tile of it fits ", shared, " bytes of shared memory, or one sample no workspace of ",
                conv_workspace_limit(), " bytes");
}

}  // namespace polyphase::cuda::tensor_core
