#pragma once
// One problem of a GPU benchmark: its operands in memory, a run of one direction or of a whole step, and the verification of
// its results.

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "gpu_check.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::bench {

/// A row of the table's precision column: the tensors' dtype and the precision of f32.
struct Mode {
  DType dtype;
  Precision precision;
};
/// Parses "ieee", "fp32", "tf32", "bf16", "f16" or "f64"; throws Error on other names.
[[nodiscard]] Mode mode_of(const std::string& name);

/// What is timed: one direction, or all three one after another, as training runs them.
struct Pass {
  std::string name;
  std::vector<ConvDirection> directions;
};
/// Parses "forward", "dgrad", "wgrad" or "step"; throws Error on other names.
[[nodiscard]] Pass pass_of(const std::string& name);

/// The allowed error as sampled_error() has it: rounding of the operands or of the sums.
[[nodiscard]] double allowed_error(const ConvProblem& p, ConvDirection direction, const Mode& mode);

/// Random normal operands and results, in as many sets as exceed the L2, at most 16.
class Sets {
 public:
  struct Set {
    Tensor x, w, dy, y, dx, dw;
    /// Operands and result of one direction, by their names in conv/problem.hpp.
    [[nodiscard]] DeviceOperands operands(ConvDirection direction) const;
    [[nodiscard]] const Tensor& result(ConvDirection direction) const;
  };
  Sets(const ConvProblem& p, int l2_bytes);
  Set& at(int i) { return sets_[static_cast<std::size_t>(i) % sets_.size()]; }
  [[nodiscard]] int size() const { return static_cast<int>(sets_.size()); }

 private:
  std::vector<Set> sets_;
};

/// The source of a kernel's packed weights: cached by the layer since they last changed, or made in each call, as in training.
enum class PackedWeights { kept, made };

/// Our own convolution.
void run_own(const ConvProblem& p, ConvDirection direction, Sets::Set& set, Algorithm algorithm, Precision precision,
             PackedWeights packed, cudaStream_t stream);

/// Poisons the results of a pass, lets `run` compute them and compares a sample with the formula in float64. Gives the largest
/// error over the allowed one, and sampled_error() itself. `nhwc`: the layout of the arrays.
struct Verdict {
  double error = 0;
  double share = 0;  ///< error over the allowed error
  [[nodiscard]] bool right(double most = 1) const { return share <= most; }
};
[[nodiscard]] Verdict verify(const ConvProblem& p, const Pass& pass, const Mode& mode, Sets::Set& set,
                             const std::function<void()>& run, bool nhwc, cudaStream_t stream);

/// Bytes that a pass moves if it moves every array once.
[[nodiscard]] double bytes_of(const ConvProblem& p, const Pass& pass);

}  // namespace polyphase::bench
