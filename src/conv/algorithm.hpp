#pragma once
// The algorithms and precisions of convolutions, and the scoped guards that choose them.

#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace polyphase {

/// How a convolution is computed. `automatic` is a pure function of problem and device. On the CPU: `gemm` is
/// cpu/conv/phase_gemm, `depthwise` its channel-wise path, `reference` the plain Eigen sums. `direct` and `tensor_core` are
/// CUDA kernels. Requesting an algorithm that cannot compute a problem throws NotImplemented with the reason.
enum class Algorithm : std::uint8_t { automatic, direct, depthwise, tensor_core, gemm, reference };

/// The required accuracy of a float32 convolution. `ieee`: FFMA arithmetic. `fp32` (default): the error against float64 is no
/// worse than ieee's. `tf32`: inputs may be rounded to tf32.
enum class Precision : std::uint8_t { ieee, fp32, tf32 };

/// The enumerators' names; parsing throws Error with the list of names.
[[nodiscard]] std::string_view name_of(Algorithm algorithm);
[[nodiscard]] std::string_view name_of(Precision precision);
[[nodiscard]] Algorithm parse_algorithm(std::string_view name);
[[nodiscard]] Precision parse_precision(std::string_view name);
std::ostream& operator<<(std::ostream& out, Algorithm algorithm);
std::ostream& operator<<(std::ostream& out, Precision precision);

/// The calling thread's choice: `automatic` and `fp32` unless a guard sets another one.
[[nodiscard]] Algorithm current_algorithm();
[[nodiscard]] Precision current_precision();

/// Sets the calling thread's algorithm until the end of the scope.
class AlgorithmGuard {
 public:
  explicit AlgorithmGuard(Algorithm algorithm);
  ~AlgorithmGuard();
  AlgorithmGuard(const AlgorithmGuard&) = delete;
  AlgorithmGuard& operator=(const AlgorithmGuard&) = delete;

 private:
  Algorithm previous_;
};

/// Sets the calling thread's precision until the end of the scope.
class PrecisionGuard {
 public:
  explicit PrecisionGuard(Precision precision);
  ~PrecisionGuard();
  PrecisionGuard(const PrecisionGuard&) = delete;
  PrecisionGuard& operator=(const PrecisionGuard&) = delete;

 private:
  Precision previous_;
};

}  // namespace polyphase
