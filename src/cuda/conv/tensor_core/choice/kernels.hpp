#pragma once
// Which of its kernels for forward and dgrad Algorithm::tensor_core takes: the one that a model of problem and device says is
// the fastest (pipeline/cost.hpp).

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

/// Each in a folder of its name, whose entry.cpp has its KernelEntry. A new kernel has a name here and a row in kernels.cpp.
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

/// Nothing where the kernel cannot do the problem on such a GPU, which has wgmma; nor of the preconverted kernel, which has
/// an estimate of its own (preconverted_candidates()).
[[nodiscard]] std::optional<CostCounts> cost_counts(GatherKernel kernel, const KernelProblem& asked,
                                                    const DeviceProperties& gpu);

/// The estimated seconds of all its launches, weights packed. Of the preconverted kernel those of its fastest plan.
[[nodiscard]] std::optional<double> kernel_cost(GatherKernel kernel, const KernelProblem& asked, const DeviceProperties& gpu);

struct KernelCandidate {
  GatherKernel kernel;
  double seconds;
};
/// Every kernel that can, the fastest first: a pure function of its arguments and conv_workspace_limit().
[[nodiscard]] std::vector<KernelCandidate> gather_kernels(const KernelProblem& asked, const DeviceProperties& gpu);

/// The first of them on `device`; on a GPU without wgmma the preconverted kernel where it can.
[[nodiscard]] std::optional<KernelCandidate> chosen_kernel(const KernelProblem& asked, int device);

/// Whether `kernel` applies `epilogue` faster than a launch of its own would, with the bits of launches of their own. Of f32
/// the sums near zero may be computed again behind the product: then outputs must tell their sums.
[[nodiscard]] bool fuses(GatherKernel kernel, const KernelProblem& asked, const Epilogue& epilogue, int device);
/// The same of the kernel that is chosen; false where none can do the problem.
[[nodiscard]] bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device);

/// How a kernel cuts a problem that it can do, in words: "11 tiles a block, 2 tiles of columns".
[[nodiscard]] std::string tiling_text(GatherKernel kernel, const KernelProblem& asked, int device);

/// A forward or dgrad by a kernel that can, through an epilogue that it fuses().
void gather_by(GatherKernel kernel, const Gather& call);

}  // namespace polyphase::cuda::tensor_core
