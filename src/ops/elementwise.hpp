#pragma once
// Elementwise arithmetic with broadcasting. All functions are differentiable unless stated otherwise. All throw ShapeError,
// DTypeError and DeviceError, naming the operation, if the operands do not fit. Operands must share dtype and device: convert
// with to(). With f16 or bf16 a double is used in f32, where the result is computed and then rounded once. With i64 a double
// must be an integer in its range (DTypeError).

#include "../tensor/tensor.hpp"

namespace polyphase {

[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor sub(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor div(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor add(const Tensor& a, double b);
[[nodiscard]] Tensor mul(const Tensor& a, double b);
/// a + scale*b in one pass.
[[nodiscard]] Tensor add_scaled(const Tensor& a, const Tensor& b, double scale);
/// a + b*c in one pass, rounded once (torch.addcmul).
[[nodiscard]] Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c);

[[nodiscard]] inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, double b) { return add(a, -b); }
[[nodiscard]] Tensor operator-(double a, const Tensor& b);
[[nodiscard]] inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
[[nodiscard]] Tensor operator/(const Tensor& a, double b);
[[nodiscard]] Tensor operator/(double a, const Tensor& b);
[[nodiscard]] Tensor operator-(const Tensor& a);

[[nodiscard]] Tensor abs(const Tensor& a);  ///< gradient 0 at 0
[[nodiscard]] Tensor square(const Tensor& a);
[[nodiscard]] Tensor sqrt(const Tensor& a);
[[nodiscard]] Tensor rsqrt(const Tensor& a);  ///< 1/sqrt(a)
[[nodiscard]] Tensor reciprocal(const Tensor& a);
[[nodiscard]] Tensor exp(const Tensor& a);
[[nodiscard]] Tensor log(const Tensor& a);
[[nodiscard]] Tensor sin(const Tensor& a);
[[nodiscard]] Tensor cos(const Tensor& a);
[[nodiscard]] Tensor pow(const Tensor& a, double exponent);
/// Limits values to [low, high]; a bound outside the range of i64 does not limit its values. The gradient passes inside and at
/// the bounds, as in PyTorch.
[[nodiscard]] Tensor clamp(const Tensor& a, double low, double high);
/// Gradients go to the larger (smaller) operand, half to each where equal, as in PyTorch.
[[nodiscard]] Tensor maximum(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor minimum(const Tensor& a, const Tensor& b);
/// condition != 0 ? a : b, broadcast together; condition has a's dtype and gets no gradient.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

/// Comparisons give 0 or 1 in the operands' dtype: masks to multiply with. Not differentiable.
[[nodiscard]] Tensor greater(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor greater_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor less(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor less_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor equal(const Tensor& a, const Tensor& b);

/// True if |a - b| <= absolute + relative*|b| everywhere; false where either is NaN; of i64 in f64. Waits for the device.
[[nodiscard]] bool allclose(const Tensor& a, const Tensor& b, double relative = 1e-5, double absolute = 1e-8);

}  // namespace polyphase
