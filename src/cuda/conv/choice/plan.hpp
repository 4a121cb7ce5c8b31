#pragma once
// Which algorithm a convolution gets on a GPU, and why.

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

/// What the cost model knows of a GPU. The numbers of an H200 are measured (docs/benchmarks.md); others scale with SMs and
/// clock.
struct GpuRates {
  int sm_count = 132;
  double ffma = 40e12;      ///< operations a second that the direct kernel's best tile reaches
  double blas_f32 = 50e12;  ///< cuBLAS, large products
  double blas_f64 = 50e12;
  double direct_f64 = 20e12;
  double blas_tf32 = 350e12;
  double blas_half = 650e12;
  double tensor_f32 = 120e12;  ///< Algorithm::tensor_core's kernels as they are, by precision
  double tensor_tf32 = 190e12;
  double tensor_half = 280e12;
  double bandwidth = 4.0e12;  ///< bytes a second, read and written
  double launch = 3e-6;       ///< seconds a kernel adds
};

/// Seconds put on an estimate of tensor-core kernels that has their weights packed: half of the 7 to 10 us in which an H200
/// packs those of a small layer. A training step does so each time, inference never.
inline constexpr double kWrittenWeights = 4e-6;

/// One algorithm's estimate.
struct Candidate {
  Algorithm algorithm;
  double seconds;
};

/// What a convolution is, as far as it matters to how it is done.
struct PlanRequest {
  const ConvProblem& problem;
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  int device = 0;
  Algorithm algorithm = Algorithm::automatic;
  Alignment at{};
  Epilogue epilogue{};
};

/// How a convolution is done, decided once: everything from here to the launch follows it.
struct ConvPlan {
  ConvProblem problem;
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  Algorithm algorithm = Algorithm::direct;
  std::vector<Candidate> candidates{};  ///< what it was chosen from, the fastest first; none where it was asked for
  std::optional<tensor_core::GatherKernel> kernel{};  ///< of forward and dgrad by tensor_core
  std::string tiling{};                               ///< of that kernel, in words
  bool has_epilogue = false;                          ///< something follows the sums,
  bool fuses = true;                                  ///< and the kernel applies it, not launches of their own
};

/// `forward N=... f32 fp32: tensor_core by source_tma (11 tiles a block, 1 of columns), epilogue fused (tensor_core 42 us,
/// direct 420 us)`.
std::ostream& operator<<(std::ostream& out, const ConvPlan& plan);

/// The rates assumed for a device.
[[nodiscard]] GpuRates rates_of(int device);

/// Estimated seconds of an algorithm that can do the problem. A pure function.
[[nodiscard]] double estimate(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm, Precision precision,
                              const GpuRates& rates);

/// The plan: a pure function of its argument and of conv_workspace_limit(). Throws NotImplemented where the algorithm that is
/// asked for cannot do the problem.
[[nodiscard]] ConvPlan make_conv_plan(const PlanRequest& request);
/// The same, remembered, so that asking again costs less than a launch. A new plan is logged (POLYPHASE_LOG=plan).
[[nodiscard]] const ConvPlan& conv_plan(const PlanRequest& request);

}  // namespace polyphase::cuda
