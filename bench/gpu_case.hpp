#pragma once
// One problem of a GPU benchmark: its operands in memory, one direction or a whole step of it run, and its results verified.

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "gpu_check.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::bench {

/// A row of the table's precision column: the tensors' dtype and what may be done to f32.
struct Mode {
  DType dtype;
  Precision precision;
};
/// Of "ieee", "fp32", "tf32", "bf16", "f16" or "f64"; throws Error on other names.
[[nodiscard]] Mode mode_of(const std::string& name);

/// What is timed: one direction, or all three one after another, as training runs them.
struct Pass {
  std::string name;
  std::vector<ConvDirection> directions;
};
/// Of "forward", "dgrad", "wgrad" or "step"; throws Error on other names.
[[nodiscard]] Pass pass_of(const std::string& name);

/// What a result may be off by, over its root mean square: rounding of the operands or of the sums.
[[nodiscard]] double allowed_error(const ConvProblem& p, ConvDirection direction, const Mode& mode);

/// Random normal operands, results of their own, and as many sets of them as make the L2 forget, at most 16.
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

/// Where a kernel that wants its weights in a form of its own gets them: kept by the layer since they last changed, or made at
/// each call, as in training.
enum class PackedWeights { kept, made };

/// Our own convolution.
void run_own(const ConvProblem& p, ConvDirection direction, Sets::Set& set, Algorithm algorithm, Precision precision,
             PackedWeights packed, cudaStream_t stream);

/// Poisons the results of a pass, has `run` compute them and compares a sample with the formula in float64: the worst error
/// over what it may be, and the error itself. `nhwc`: the arrays are laid out that way.
struct Verdict {
  double error = 0;
  double share = 0;  ///< of the allowed error
  [[nodiscard]] bool right(double most = 1) const { return share <= most; }
};
[[nodiscard]] Verdict verify(const ConvProblem& p, const Pass& pass, const Mode& mode, Sets::Set& set,
                             const std::function<void()>& run, bool nhwc, cudaStream_t stream);

/// Bytes that a pass moves when every array is moved once.
[[nodiscard]] double bytes_of(const ConvProblem& p, const Pass& pass);

}  // namespace polyphase::bench
