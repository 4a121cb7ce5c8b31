#pragma once
// Which of its kernels for forward and dgrad Algorithm::tensor_core takes: the one that a model of problem and device says is
// the fastest. What a kernel has to do for a problem is counted (CostCounts), and how fast it does that
// was measured once (docs/kernels/tensor_core.md), for all problems alike.

#include <optional>
#include <string_view>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Each in a folder of its name.
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
[[nodiscard]] std::string_view name_of(GatherKernel kernel);

/// What a kernel does, weights packed. Cycles and numbers are those of the multiprocessor that has the most to do.
struct CostCounts {
  double multiply = 0;  ///< cycles of the tensor cores
  double convert = 0;   ///< numbers of the source that become operands
  double store = 0;     ///< numbers of the output, as they are staged
  double tiles = 0;
  double column_tiles = 1;       ///< for each of which the source is read
  double read = 0, written = 0;  ///< bytes of the tensors, each once, of all multiprocessors
  bool gathers = false;          ///< from planes of a stride
  bool spreads = false;          ///< outputs of several classes; of rows: such that go through shared memory
};

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

/// The first of them on `device`, on a GPU without wgmma the preconverted kernel where it can; remembered, so that asking again
/// costs less than a launch.
[[nodiscard]] std::optional<KernelCandidate> chosen_kernel(const KernelProblem& asked, int device);

/// gather() of tensor_core.hpp by a kernel that can.
void gather_by(GatherKernel kernel, const Gather& call);

}  // namespace polyphase::cuda::tensor_core
