#pragma once
// Every MapOp as a function of vectors, for the ISA sources; the formulas are given in tensor/map_op.hpp.

#include "cpu/elementwise/elementwise_math.hpp"
#include "tensor/map_op.hpp"

namespace polyphase::cpu::POLYPHASE_ISA {

/// The inputs of one MapOp, and its scalars in every lane. V is F32 or F64.
template <class V>
struct MapInputs {
  V a, b, c, d, p, q;
};

/// sqrt(1/2), sqrt(2/pi), 1/sqrt(2 pi) and the cubic coefficient of the tanh form of GELU.
inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
inline constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;
inline constexpr double kGeluCubic = 0.044715;

// If either operand is NaN, so is the result, as in PyTorch.
template <class V>
POLYPHASE_INLINE V larger(V a, V b) {
  return a >= b ? a : b != b ? b : a != a ? a : b;
}
template <class V>
POLYPHASE_INLINE V smaller(V a, V b) {
  return a <= b ? a : b != b ? b : a != a ? a : b;
}

template <MapOp op, class V>
POLYPHASE_INLINE V arithmetic(const MapInputs<V>& in) {
  const V a = in.a, b = in.b, zero = constant<V>(0), one = constant<V>(1);
  if constexpr (op == MapOp::add) return a + b;
  if constexpr (op == MapOp::sub) return a - b;
  if constexpr (op == MapOp::mul) return a * b;
  if constexpr (op == MapOp::div) return a / b;
  if constexpr (op == MapOp::add_scaled) return a + in.p * b;
  if constexpr (op == MapOp::affine) return in.p * a + in.q;
  if constexpr (op == MapOp::scale_around) return (a - b) * in.c + in.d;
  if constexpr (op == MapOp::addcmul) return a + b * in.c;
  if constexpr (op == MapOp::maximum) return larger(a, b);
  if constexpr (op == MapOp::minimum) return smaller(a, b);
  if constexpr (op == MapOp::pow_scalar) return pow(a, in.p);
  if constexpr (op == MapOp::div_scalar) return a / in.p;
  if constexpr (op == MapOp::neg) return -a;
  if constexpr (op == MapOp::abs) return abs(a);
  if constexpr (op == MapOp::sign) return a > zero ? one : a < zero ? -one : zero;
  if constexpr (op == MapOp::square) return a * a;
  if constexpr (op == MapOp::sqrt) return sqrt(a);
  if constexpr (op == MapOp::rsqrt) return one / sqrt(a);
  if constexpr (op == MapOp::reciprocal) return one / a;
  if constexpr (op == MapOp::exp) return exp(a);
  if constexpr (op == MapOp::log) return log(a);
  if constexpr (op == MapOp::sin) return sin(a);
  if constexpr (op == MapOp::cos) return cos(a);
  if constexpr (op == MapOp::clamp) return a < in.p ? in.p : a > in.q ? in.q : a;
  if constexpr (op == MapOp::greater) return a > b ? one : zero;
  if constexpr (op == MapOp::greater_equal) return a >= b ? one : zero;
  if constexpr (op == MapOp::less) return a < b ? one : zero;
  if constexpr (op == MapOp::less_equal) return a <= b ? one : zero;
  if constexpr (op == MapOp::equal) return a == b ? one : zero;
  if constexpr (op == MapOp::where) return a != zero ? b : in.c;
}

/// The cumulative distribution function of the normal distribution.
template <class V>
POLYPHASE_INLINE V normal_below(V x) {
  return constant<V>(0.5) + constant<V>(0.5) * erf(x * constant<V>(kSqrtHalf));
}
/// GELU's tanh form as x * sigmoid(2u): no cancellation near tanh = -1.
template <class V>
POLYPHASE_INLINE V gelu_gate(V x) {
  return sigmoid(constant<V>(2 * kSqrtTwoOverPi) * (x + constant<V>(kGeluCubic) * (x * x * x)));
}
template <class V>
POLYPHASE_INLINE V softplus(V x) {
  return (x < constant<V>(0) ? constant<V>(0) : x) + log1p_unit(exp(-abs(x)));
}

template <MapOp op, class V>
POLYPHASE_INLINE V activation(const MapInputs<V>& in) {
  const V x = in.a, zero = constant<V>(0);
  if constexpr (op == MapOp::relu) return x < zero ? zero : x;
  if constexpr (op == MapOp::leaky_relu) return x < zero ? in.p * x : x;
  if constexpr (op == MapOp::elu) return x > zero ? x : in.p * expm1_negative(x > zero ? zero : x);
  if constexpr (op == MapOp::gelu) return x * normal_below(x);
  if constexpr (op == MapOp::gelu_tanh) return x * gelu_gate(x);
  if constexpr (op == MapOp::silu) return x * sigmoid(x);
  if constexpr (op == MapOp::tanh) return tanh(x);
  if constexpr (op == MapOp::sigmoid) return sigmoid(x);
  if constexpr (op == MapOp::softplus) return softplus(x);
  if constexpr (op == MapOp::snake) {
    const V s = sin(in.b * x);
    return x + s * s / in.c;
  }
}

template <class V>
POLYPHASE_INLINE V gelu_slope(V x) {
  return normal_below(x) + x * constant<V>(kInverseSqrtTwoPi) * exp(constant<V>(-0.5) * x * x);
}
template <class V>
POLYPHASE_INLINE V gelu_tanh_slope(V x) {
  const V gate = gelu_gate(x);
  const V inner = constant<V>(2 * kSqrtTwoOverPi) * (constant<V>(1) + constant<V>(3 * kGeluCubic) * (x * x));
  return gate + x * gate * (constant<V>(1) - gate) * inner;
}
template <class V>
POLYPHASE_INLINE V silu_slope(V x) {
  const V gate = sigmoid(x);
  return gate * (constant<V>(1) + x * (constant<V>(1) - gate));
}

template <MapOp op, class V>
POLYPHASE_INLINE V gradient(const MapInputs<V>& in) {
  const V a = in.a, g = in.b, zero = constant<V>(0), one = constant<V>(1);
  if constexpr (op == MapOp::relu_grad) return a <= zero ? zero : g;  // a NaN passes the gradient, as in PyTorch
  if constexpr (op == MapOp::leaky_relu_grad) return a > zero ? g : in.p * g;
  if constexpr (op == MapOp::elu_grad) return a > zero ? g : g * in.p * exp(a);
  if constexpr (op == MapOp::gelu_grad) return g * gelu_slope(a);
  if constexpr (op == MapOp::gelu_tanh_grad) return g * gelu_tanh_slope(a);
  if constexpr (op == MapOp::silu_grad) return g * silu_slope(a);
  if constexpr (op == MapOp::tanh_grad) return g * (one - a * a);
  if constexpr (op == MapOp::sigmoid_grad) return g * (a * (one - a));
  if constexpr (op == MapOp::softplus_grad) return g * sigmoid(a);
}

// In gradients g is the third input.
template <MapOp op, class V>
POLYPHASE_INLINE V loss(const MapInputs<V>& in) {
  const V d = in.a - in.b, g = in.c, p = in.p, one = constant<V>(1);
  if constexpr (op == MapOp::squared_difference) return d * d;
  if constexpr (op == MapOp::squared_difference_grad) return in.q * g * d;
  if constexpr (op == MapOp::smooth_l1) {
    const V m = abs(d), half = constant<V>(0.5);
    return m < p ? half * d * d / p : m - half * p;
  }
  if constexpr (op == MapOp::smooth_l1_grad) {
    const V slope = d > p ? one : d < -p ? -one : d / (p > constant<V>(0) ? p : one);  // 0 at 0 if p is 0
    return in.q * g * slope;
  }
}

// In the gradients of Snake g is the fourth input.
template <MapOp op, class V>
POLYPHASE_INLINE V snake_gradient(const MapInputs<V>& in) {
  const V x = in.a, alpha = in.b, beta = in.c, g = in.d;
  if constexpr (op == MapOp::snake_grad_beta) {
    const V s = sin(alpha * x);
    return -g * (s * s) / (beta * beta);
  } else {
    const V twice = alpha * x;
    const V s = sin(twice + twice) / beta;
    if constexpr (op == MapOp::snake_grad_alpha) return g * (x * s);
    if constexpr (op == MapOp::snake_grad_x) return g * (constant<V>(1) + alpha * s);
  }
}

constexpr bool is_snake_gradient(MapOp op) { return op >= MapOp::snake_grad_x && op <= MapOp::snake_grad_beta; }
constexpr bool is_gradient(MapOp op) {
  return (op >= MapOp::relu_grad && op <= MapOp::sigmoid_grad) || op == MapOp::softplus_grad;
}
constexpr bool is_loss(MapOp op) { return op >= MapOp::squared_difference; }

/// The number of inputs of `op`.
constexpr int inputs_of(MapOp op) {
  if (is_snake_gradient(op) || op == MapOp::scale_around) return 4;
  if (is_loss(op)) return op == MapOp::squared_difference || op == MapOp::smooth_l1 ? 2 : 3;
  if (op == MapOp::where || op == MapOp::snake || op == MapOp::addcmul) return 3;
  const bool binary =
      op <= MapOp::add_scaled || op == MapOp::maximum || op == MapOp::minimum || (op >= MapOp::greater && op <= MapOp::equal);
  return binary || is_gradient(op) ? 2 : 1;
}

template <MapOp op, class V>
POLYPHASE_INLINE V apply(const MapInputs<V>& in) {
  if constexpr (is_snake_gradient(op)) {
    return snake_gradient<op>(in);
  } else if constexpr (is_loss(op)) {
    return loss<op>(in);
  } else if constexpr (is_gradient(op)) {
    return gradient<op>(in);
  } else if constexpr (op <= MapOp::where) {
    return arithmetic<op>(in);
  } else {
    return activation<op>(in);
  }
}

}  // namespace polyphase::cpu::POLYPHASE_ISA
