#pragma once
// What the choice of a kernel for forward and dgrad knows of each of them. Every kernel's folder has an entry.cpp with one, and
// choice/kernels.cpp lists them.

#include <optional>
#include <string_view>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/pipeline/cost.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

struct KernelEntry {
  std::string_view name;  ///< of its folder
  /// Nothing where the kernel cannot do the problem on such a GPU, which has wgmma. The preconverted kernel counts nothing.
  std::optional<CostCounts> (*counts)(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) = nullptr;
  KindRates rates{};
  /// Instead of counts and rates: the estimated seconds of all launches, weights packed.
  std::optional<double> (*seconds)(const KernelProblem& asked, const DeviceProperties& gpu) = nullptr;
  /// Whether the kernel applies `epilogue` faster than a launch of its own would, of a problem that it can do.
  bool (*fuses)(const KernelProblem& asked, const Epilogue& epilogue, int device) = nullptr;
  /// gather() of tensor_core.hpp for a problem that it can do.
  void (*gather)(const Gather& call) = nullptr;
};

/// Whether a kernel that stages its outputs in rows applies an aux operand there, faster than a launch would. It comes to where
/// they are staged: there is room for one thing, but `may_add` a residual to what went through a derivative, by vectors. Of 16
/// bits everything comes by vectors, and of 32 columns two of four warps do it all, which takes longer than a launch
/// (docs/kernels/launches.md).
[[nodiscard]] bool staging_takes_aux(const KernelProblem& asked, const Epilogue& epilogue, bool may_add);

}  // namespace polyphase::cuda::tensor_core
