#pragma once
// What the choice knows about a forward and dgrad kernel. Every kernel's folder has an entry.cpp with one entry, and
// choice/kernels.cpp lists them.

#include <optional>
#include <string_view>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/pipeline/cost.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

struct KernelEntry {
  std::string_view name;  ///< the folder's name
  /// Nothing if the kernel cannot compute the problem on such a GPU (with wgmma). The preconverted kernel counts nothing.
  std::optional<CostCounts> (*counts)(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) = nullptr;
  KindRates rates{};
  /// Replaces counts and rates: the estimated seconds of all launches with packed weights.
  std::optional<double> (*seconds)(const KernelProblem& asked, const DeviceProperties& gpu) = nullptr;
  /// Whether the kernel applies `epilogue` faster than a separate launch would, for a problem that it can compute.
  bool (*fuses)(const KernelProblem& asked, const Epilogue& epilogue, int device) = nullptr;
  /// Whether the kernel applies TapGemm::source_slope as it reads the source.
  bool activates_source = false;
  /// Whether the kernel applies Gather::snake as it reads the source, for a problem that it can compute.
  bool (*activates_snake)(const KernelProblem& asked) = nullptr;
  /// gather() of tensor_core.hpp for a problem that the kernel can compute.
  void (*gather)(const Gather& call) = nullptr;
};

/// Whether a kernel that stages its outputs in rows applies an aux operand there faster than a launch would. The aux operand is
/// loaded into the staging, which holds one; with `may_add`, a residual is added in vectors after a derivative. In 16 bits
/// everything is loaded in vectors. With 32 columns two of four warps do all of it, which takes longer than a launch
/// (docs/kernels/launches.md).
[[nodiscard]] bool staging_takes_aux(const KernelProblem& asked, const Epilogue& epilogue, bool may_add);

}  // namespace polyphase::cuda::tensor_core
