#pragma once
// Chooses among the forward and dgrad kernels of Algorithm::tensor_core: the one with the shortest estimated time
// (pipeline/cost.hpp).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/cost.hpp"
#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Each kernel has a folder of its name, whose entry.cpp has its KernelEntry. A new kernel has a name here and a row in
/// kernels.cpp.
enum class GatherKernel : int {
  phased_stride2,
  phased_stride4,
  preconverted,
  source_tma_16bit,
  source_tma,
  source_bulk,
  stride1,
  stationary
};
inline constexpr GatherKernel kGatherKernels[] = {
    GatherKernel::phased_stride2, GatherKernel::phased_stride4, GatherKernel::preconverted, GatherKernel::source_tma_16bit,
    GatherKernel::source_tma,     GatherKernel::source_bulk,    GatherKernel::stride1,      GatherKernel::stationary};
[[nodiscard]] const KernelEntry& entry_of(GatherKernel kernel);
[[nodiscard]] inline std::string_view name_of(GatherKernel kernel) { return entry_of(kernel).name; }

/// Nothing if the kernel cannot compute the problem on such a GPU (with wgmma). Nothing for the preconverted kernel either,
/// which has an estimate of its own (preconverted_candidates()).
[[nodiscard]] std::optional<CostCounts> cost_counts(GatherKernel kernel, const KernelProblem& asked,
                                                    const DeviceProperties& gpu);

/// The estimated seconds of all launches with packed weights. For the preconverted kernel, those of its fastest plan.
[[nodiscard]] std::optional<double> kernel_cost(GatherKernel kernel, const KernelProblem& asked, const DeviceProperties& gpu);

struct KernelCandidate {
  GatherKernel kernel;
  double seconds;
};
/// All kernels that can compute the problem, the fastest first: a pure function of its arguments and conv_workspace_limit().
[[nodiscard]] std::vector<KernelCandidate> gather_kernels(const KernelProblem& asked, const DeviceProperties& gpu);

/// The first of them on `device`. On a GPU without wgmma, the preconverted kernel if it can compute the problem.
[[nodiscard]] std::optional<KernelCandidate> chosen_kernel(const KernelProblem& asked, int device);

/// Whether `kernel` applies `epilogue` faster than a separate launch would, with the same bits. In f32, sums near zero may be
/// recomputed after the product; then outputs must reveal their sums.
[[nodiscard]] bool fuses(GatherKernel kernel, const KernelProblem& asked, const Epilogue& epilogue, int device);
/// The same for the chosen kernel; false if none can compute the problem.
[[nodiscard]] bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device);

/// A kernel's tiling of a problem that it can compute, in words: "11 tiles a block, 2 tiles of columns".
[[nodiscard]] std::string tiling_text(GatherKernel kernel, const KernelProblem& asked, int device);

/// Runs a forward or dgrad with a kernel that can compute it and an epilogue that it fuses().
void gather_by(GatherKernel kernel, const Gather& call);

}  // namespace polyphase::cuda::tensor_core
