#pragma once
// The choice of an algorithm and kernel for a convolution on a GPU.

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/alignment.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/choice/kernels.hpp"

namespace polyphase::cuda {

/// GPU rates for the cost model. The H200's are measured (docs/benchmarks.md); others scale with SMs and clock.
struct GpuRates {
  int sm_count = 132;
  double ffma = 40e12;      ///< operations per second of the direct kernel's best tile
  double blas_f32 = 50e12;  ///< cuBLAS, large products
  double blas_f64 = 50e12;
  double direct_f64 = 20e12;
  double blas_tf32 = 350e12;
  double blas_half = 650e12;
  double tensor_f32 = 120e12;  ///< Algorithm::tensor_core's kernels by precision
  double tensor_tf32 = 190e12;
  double tensor_half = 280e12;
  double bandwidth = 4.0e12;  ///< bytes per second, read and written
  double launch = 3e-6;       ///< seconds per kernel launch
};

/// Seconds added to the estimate of a tensor-core kernel that packs its weights: in f32, half of the 7 to 10 us that an H200
/// takes for a small layer. A training step packs each time, inference once.
[[nodiscard]] constexpr double packing_seconds(DType dtype) { return dtype == DType::f32 ? 4e-6 : 2.5e-6; }

/// Seconds of a tensor-core kernel and of the launches before and after it, for the smallest problem. f32 takes samples of its
/// source before, and looks for sums to compute again after.
[[nodiscard]] constexpr double least_tensor_core_seconds(DType dtype, Precision precision) {
  return dtype != DType::f32 ? 6e-6 : precision == Precision::tf32 ? 9.5e-6 : 10e-6;
}

/// One algorithm's estimate.
struct Candidate {
  Algorithm algorithm;
  double seconds;
};

/// A convolution, as far as the choice depends on it.
struct PlanRequest {
  const ConvProblem& problem;
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  int device = 0;
  Algorithm algorithm = Algorithm::automatic;
  Alignment at{};
  Epilogue epilogue{};
  bool has_bias = false;
};

/// How a convolution is computed. Decided once; everything from here to the launch follows it.
struct ConvPlan {
  ConvProblem problem;
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  Algorithm algorithm = Algorithm::direct;
  std::vector<Candidate> candidates{};                ///< the ranking, the fastest first; empty if the algorithm was requested
  std::optional<tensor_core::GatherKernel> kernel{};  ///< of forward and dgrad with tensor_core
  std::string tiling{};                               ///< of that kernel, in words
  bool has_epilogue = false;                          ///< whether there is an epilogue
  bool activates_source = false;                      ///< whether the kernel applies TapGemm::source_slope
  bool activates_snake = false;                       ///< whether the kernel applies SourceActivation::snake
  bool fuses = true;  ///< whether the kernel applies the epilogue; else it takes launches of its own
};

/// Example: `forward N=... f32 fp32: tensor_core by source_tma (11 tiles a block, 1 of columns), epilogue fused (tensor_core 42
/// us, direct 420 us)`.
std::ostream& operator<<(std::ostream& out, const ConvPlan& plan);

/// The rates assumed for a device.
[[nodiscard]] GpuRates rates_of(int device);

/// Estimated seconds of an algorithm that can do the problem, without bias or epilogue. A pure function.
[[nodiscard]] double estimate(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm, Precision precision,
                              const GpuRates& rates);

/// The plan: a pure function of its argument and of conv_workspace_limit(). Throws NotImplemented if the requested algorithm
/// cannot compute the problem.
[[nodiscard]] ConvPlan make_conv_plan(const PlanRequest& request);
/// The same, cached: a repeated request costs less than a launch. A new plan is logged (POLYPHASE_LOG=plan).
[[nodiscard]] const ConvPlan& conv_plan(const PlanRequest& request);

}  // namespace polyphase::cuda
