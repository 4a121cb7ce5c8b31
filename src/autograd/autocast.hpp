#pragma once
// Mixed precision: which operations compute in 16 bits, and which must not.

#include <optional>
#include <unordered_map>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Computes in 16 bits on the calling thread until the end of the scope, as PyTorch's torch.autocast does:
///
///   - conv1d, conv_transpose1d, linear and matmul cast their operands to the guard's dtype (sums stay in f32), antialias_snake
///     the samples;
///   - sum, mean, var, norm, exp, log, pow, rsqrt, reciprocal, softplus, group_norm, batch_norm, layer_norm, rms_norm, softmax,
///     log_softmax, lstm, rfft, power_spectrogram and all losses cast 16-bit operands to f32;
///   - operations of several operands bring them to the widest dtype among them; everything else takes what it gets.
///
/// f64 and i64 are left alone. Parameters stay what they are, f32 "master weights", and get gradients of their own dtype; the
/// cast of each is kept until it is written or the guard ends, so let a guard span the forward pass. backward() runs every
/// operation in the dtypes that its forward had, with or without a guard. May stand inside cuda::capture.
class AutocastGuard {
 public:
  /// Throws DTypeError unless `dtype` is bf16 or f16. f16 wants a GradScaler; bf16 has f32's range.
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
    Tensor parameter;  // keeps its address from being used again
    Tensor value;
    std::uint64_t version;  // of the parameter
  };

  std::optional<DType> dtype_;
  AutocastGuard* previous_;
  bool recording_ = false;                         // made inside cuda::capture: only there are its casts what they say
  std::unordered_map<const void*, Cast> casts_{};  // by the parameter's place on the tape
};

/// What the calling thread's guard casts to; nothing without one.
[[nodiscard]] std::optional<DType> autocast_dtype();

// For operations.
namespace autograd {

/// What an operation computes in 16 bits gets instead of `tensor`, which may be undefined.
[[nodiscard]] Tensor lowered(const Tensor& tensor);
/// What an operation that needs f32 gets instead of `tensor`, which may be undefined.
[[nodiscard]] Tensor raised(const Tensor& tensor);
/// Whether raised() would cast.
[[nodiscard]] bool raises(const Tensor& tensor);
/// Whether a guard brings the two to one dtype. False for equal dtypes and for integers.
[[nodiscard]] bool promotes(const Tensor& a, const Tensor& b);
/// `tensor` in the widest dtype of the two; f16 and bf16 together are f32.
[[nodiscard]] Tensor promoted(const Tensor& tensor, const Tensor& other);

}  // namespace autograd
}  // namespace polyphase
