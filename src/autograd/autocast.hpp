#pragma once
// Mixed precision: which operations compute in 16 bits, and which do not.

#include <optional>
#include <span>
#include <unordered_map>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Computes in 16 bits on the calling thread until the end of the scope, like PyTorch's torch.autocast:
///
///   - conv1d, conv_transpose1d, linear and matmul cast their operands to the guard's dtype (sums stay in f32), antialias_snake
///     the samples;
///   - sum, mean, var, norm, exp, log, pow, rsqrt, reciprocal, softplus, group_norm, batch_norm, layer_norm, rms_norm, softmax,
///     log_softmax, lstm, rfft, power_spectrogram and all losses cast 16-bit operands to f32;
///   - operations with several operands convert them to the widest of their dtypes; all others use their operand's dtype.
///
/// f64 and i64 are not cast. Parameters stay f32 "master weights" and get gradients of their own dtype. The cast of each
/// parameter is cached until the parameter is written or the guard ends, so let a guard span the forward pass. backward() runs
/// every operation in the dtypes of its forward pass, with or without a guard. Allowed inside cuda::capture.
class AutocastGuard {
 public:
  /// Throws DTypeError unless `dtype` is bf16 or f16. f16 needs a GradScaler; bf16 has f32's range.
  explicit AutocastGuard(DType dtype);
  /// Switches casting off: `AutocastGuard off(std::nullopt);`
  explicit AutocastGuard(std::nullopt_t);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  friend std::optional<DType> autocast_dtype();
  friend struct AutocastAccess;
  struct Cast {
    Tensor parameter;  // keeps its address from being reused
    Tensor value;
    std::uint64_t version;  // of the parameter
  };

  std::optional<DType> dtype_;
  AutocastGuard* previous_;
  bool recording_ = false;                         // made inside cuda::capture: its casts are valid only there
  std::unordered_map<const void*, Cast> casts_{};  // keyed by the parameter's place on the tape
};

/// The dtype that the calling thread's guard casts to; nothing without a guard.
[[nodiscard]] std::optional<DType> autocast_dtype();

// For operations.
namespace autograd {

/// The operand of an operation that computes in 16 bits; `tensor` may be undefined.
[[nodiscard]] Tensor lowered(const Tensor& tensor);
/// Casts the parameters among `tensors` that lowered() would, in one pass over memory, for later calls of lowered().
void lower_ahead(std::span<const Tensor> tensors);
/// The operand of an operation that needs f32; `tensor` may be undefined.
[[nodiscard]] Tensor raised(const Tensor& tensor);
/// Whether raised() would cast.
[[nodiscard]] bool raises(const Tensor& tensor);
/// Whether a guard converts the two to one dtype. False for equal dtypes and for integers.
[[nodiscard]] bool promotes(const Tensor& a, const Tensor& b);
/// `tensor` in the wider of the two dtypes; f16 and bf16 together give f32.
[[nodiscard]] Tensor promoted(const Tensor& tensor, const Tensor& other);

}  // namespace autograd
}  // namespace polyphase
