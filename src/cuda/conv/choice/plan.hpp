#pragma once
// Which algorithm a convolution gets on a GPU, and why.

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

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

/// The choice and what it was chosen from, fastest first.
struct ConvPlan {
  ConvProblem problem;
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  Algorithm algorithm = Algorithm::direct;
  std::vector<Candidate> candidates;
};

/// `forward N=... f32 fp32: direct (direct 420 us, gemm 910 us)`.
std::ostream& operator<<(std::ostream& out, const ConvPlan& plan);

/// The rates assumed for a device.
[[nodiscard]] GpuRates rates_of(int device);

/// Estimated seconds of an algorithm that can do the problem. A pure function.
[[nodiscard]] double estimate(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm, Precision precision,
                              const GpuRates& rates);

/// The ranking: a pure function of its arguments and of conv_workspace_limit().
[[nodiscard]] ConvPlan make_conv_plan(const ConvProblem& problem, ConvDirection direction, Precision precision, int device);

}  // namespace polyphase::cuda
