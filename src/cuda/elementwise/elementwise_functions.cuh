#pragma once
// Every MapOp as a function of one element; the formulas and edge cases are those of cpu/elementwise/elementwise_functions.hpp.

#include <cstddef>
#include <utility>

#include "tensor/map_op.hpp"

#ifdef __CUDACC__
#include "cuda/elementwise/snake_function.cuh"
#endif

namespace polyphase::cuda {

using MapOps = std::make_index_sequence<static_cast<std::size_t>(MapOp::smooth_l1_grad) + 1>;

/// The number of inputs of `op`.
constexpr int inputs_of(MapOp op) {
  switch (op) {
    case MapOp::add:
    case MapOp::sub:
    case MapOp::mul:
    case MapOp::div:
    case MapOp::add_scaled:
    case MapOp::maximum:
    case MapOp::minimum:
    case MapOp::greater:
    case MapOp::greater_equal:
    case MapOp::less:
    case MapOp::less_equal:
    case MapOp::equal:
    case MapOp::relu_grad:
    case MapOp::leaky_relu_grad:
    case MapOp::elu_grad:
    case MapOp::gelu_grad:
    case MapOp::gelu_tanh_grad:
    case MapOp::silu_grad:
    case MapOp::tanh_grad:
    case MapOp::sigmoid_grad:
    case MapOp::softplus_grad:
    case MapOp::squared_difference:
    case MapOp::smooth_l1:
      return 2;
    case MapOp::where:
    case MapOp::addcmul:
    case MapOp::squared_difference_grad:
    case MapOp::smooth_l1_grad:
    case MapOp::snake:
      return 3;
    case MapOp::scale_around:
    case MapOp::snake_grad_x:
    case MapOp::snake_grad_alpha:
    case MapOp::snake_grad_beta:
      return 4;
    default:
      return 1;
  }
}

/// Whether `op` takes so many instructions that the code for 16 elements is not worth its size.
constexpr bool is_long(MapOp op) {
  switch (op) {
    case MapOp::pow_scalar:
    case MapOp::sin:
    case MapOp::cos:
    case MapOp::snake:
    case MapOp::snake_grad_x:
    case MapOp::snake_grad_alpha:
    case MapOp::snake_grad_beta:
      return true;
    default:
      return false;
  }
}

#ifdef __CUDACC__

/// sqrt(1/2), sqrt(2/pi), 1/sqrt(2 pi) and the cubic coefficient of the tanh form of GELU.
inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
inline constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;
inline constexpr double kGeluCubic = 0.044715;

// If either operand is NaN, so is the result, as in PyTorch.
template <class A>
__device__ __forceinline__ A larger(A a, A b) {
  return a >= b ? a : b != b ? b : a != a ? a : b;
}
template <class A>
__device__ __forceinline__ A smaller(A a, A b) {
  return a <= b ? a : b != b ? b : a != a ? a : b;
}

/// Computed from exp(-|x|), so that nothing overflows and small results keep their digits.
template <class A>
__device__ __forceinline__ A sigmoid(A x) {
  const A z = exp(-fabs(x));
  return (x < A(0) ? z : A(1)) / (A(1) + z);
}
/// The cumulative distribution function of the normal distribution.
template <class A>
__device__ __forceinline__ A normal_below(A x) {
  return A(0.5) + A(0.5) * erf(x * A(kSqrtHalf));
}
/// GELU's tanh form as x * sigmoid(2u): no cancellation near tanh = -1.
template <class A>
__device__ __forceinline__ A gelu_gate(A x) {
  return sigmoid(A(2 * kSqrtTwoOverPi) * (x + A(kGeluCubic) * (x * x * x)));
}
template <class A>
__device__ __forceinline__ A gelu_slope(A x) {
  return normal_below(x) + x * A(kInverseSqrtTwoPi) * exp(A(-0.5) * x * x);
}
template <class A>
__device__ __forceinline__ A gelu_tanh_slope(A x) {
  const A gate = gelu_gate(x);
  return gate + x * gate * (A(1) - gate) * (A(2 * kSqrtTwoOverPi) * (A(1) + A(3 * kGeluCubic) * (x * x)));
}
template <class A>
__device__ __forceinline__ A silu_slope(A x) {
  const A gate = sigmoid(x);
  return gate * (A(1) + x * (A(1) - gate));
}

// The same for results of 16 bits: relative errors up to 2e-6, a two-hundredth of f16's rounding, in a third of the
// instructions. f32's functions would take longer than the memory takes to move the elements.
__device__ __forceinline__ float rough_sigmoid(float x) {
  const float z = __expf(-fabsf(x));
  return __fdividef(x < 0.0F ? z : 1.0F, 1.0F + z);
}
/// p*(exp(x) - 1) for x <= 0.
__device__ __forceinline__ float rough_expm1(float x, float p) {
  const float series = x * (p + x * (0.5F * p + x * (1.0F / 6 * p + x * (1.0F / 24 * p))));
  return x > -0.125F ? series : p * __expf(x) - p;
}
/// Half of erfc(|x|/sqrt(2)), mirrored for x > 0: Press et al., "Numerical Recipes in C", 2nd edition, 6.2 (erfcc).
__device__ __forceinline__ float rough_normal_below(float x) {
  const float z = fabsf(x) * static_cast<float>(kSqrtHalf), t = __fdividef(1.0F, 1.0F + 0.5F * z);
  float power = 0.17087277F;
  power = -0.82215223F + t * power;
  power = 1.48851587F + t * power;
  power = -1.13520398F + t * power;
  power = 0.27886807F + t * power;
  power = -0.18628806F + t * power;
  power = 0.09678418F + t * power;
  power = 0.37409196F + t * power;
  power = 1.00002368F + t * power;
  power = -1.26551223F + t * power;
  const float below = 0.5F * t * __expf(power - z * z);
  return x > 0.0F ? 1.0F - below : below;
}

template <class A>
__device__ __forceinline__ A squared_difference(A a, A b) {
  return (a - b) * (a - b);
}
template <class A>
__device__ __forceinline__ A smooth_l1(A a, A b, A p) {
  const A d = a - b, m = fabs(d), half(0.5);
  return m < p ? half * d * d / p : m - half * p;
}
/// The derivative by d; 0 at 0 if p is 0.
template <class A>
__device__ __forceinline__ A smooth_l1_slope(A d, A p) {
  const A one(1);
  return d > p ? one : d < -p ? -one : d / (p > A(0) ? p : one);
}

/// The functions of one input. kIs16Bit: the result is rounded to 16 bits.
template <MapOp kOp, bool kIs16Bit, class A>
__device__ __forceinline__ A evaluate_unary(A a, A p, A q) {
  const A zero(0), one(1);
  if constexpr (kIs16Bit && kOp == MapOp::elu)
    return a > zero ? a : rough_expm1(a, p);
  else if constexpr (kIs16Bit && kOp == MapOp::gelu)
    return a * rough_normal_below(a);
  else if constexpr (kIs16Bit && kOp == MapOp::gelu_tanh)
    return a * rough_sigmoid(A(2 * kSqrtTwoOverPi) * (a + A(kGeluCubic) * (a * a * a)));
  else if constexpr (kIs16Bit && kOp == MapOp::silu)
    return a * rough_sigmoid(a);
  else if constexpr (kIs16Bit && kOp == MapOp::sigmoid)
    return rough_sigmoid(a);
  else if constexpr (kOp == MapOp::affine)
    return p * a + q;
  else if constexpr (kOp == MapOp::div_scalar)
    return a / p;
  else if constexpr (kOp == MapOp::neg)
    return -a;
  else if constexpr (kOp == MapOp::abs)
    return fabs(a);
  else if constexpr (kOp == MapOp::sign)
    return a > zero ? one : a < zero ? -one : zero;
  else if constexpr (kOp == MapOp::square)
    return a * a;
  else if constexpr (kOp == MapOp::sqrt)
    return sqrt(a);
  else if constexpr (kOp == MapOp::rsqrt)
    return one / sqrt(a);
  else if constexpr (kOp == MapOp::reciprocal)
    return one / a;
  else if constexpr (kOp == MapOp::clamp)
    return a < p ? p : a > q ? q : a;
  else if constexpr (kOp == MapOp::relu)
    return a < zero ? zero : a;
  else if constexpr (kOp == MapOp::leaky_relu)
    return a < zero ? p * a : a;
  else if constexpr (kOp == MapOp::pow_scalar)
    return pow(a, p);
  else if constexpr (kOp == MapOp::exp)
    return exp(a);
  else if constexpr (kOp == MapOp::log)
    return log(a);
  else if constexpr (kOp == MapOp::sin)
    return sin(a);
  else if constexpr (kOp == MapOp::cos)
    return cos(a);
  else if constexpr (kOp == MapOp::elu)
    return a > zero ? a : p * expm1(a > zero ? zero : a);
  else if constexpr (kOp == MapOp::gelu)
    return a * normal_below(a);
  else if constexpr (kOp == MapOp::gelu_tanh)
    return a * gelu_gate(a);
  else if constexpr (kOp == MapOp::silu)
    return a * sigmoid(a);
  else if constexpr (kOp == MapOp::tanh)
    return tanh(a);
  else if constexpr (kOp == MapOp::sigmoid)
    return sigmoid(a);
  else if constexpr (kOp == MapOp::softplus)
    return (a < zero ? zero : a) + log1p(exp(-fabs(a)));
}

/// The functions of two inputs.
template <MapOp kOp, class A>
__device__ __forceinline__ A evaluate_binary(A a, A b, A p) {
  const A zero(0), one(1);
  if constexpr (kOp == MapOp::add)
    return a + b;
  else if constexpr (kOp == MapOp::sub)
    return a - b;
  else if constexpr (kOp == MapOp::mul)
    return a * b;
  else if constexpr (kOp == MapOp::div)
    return a / b;
  else if constexpr (kOp == MapOp::add_scaled)
    return fma(p, b, a);  // as in cuda/conv/epilogue/epilogue.cuh
  else if constexpr (kOp == MapOp::maximum)
    return larger(a, b);
  else if constexpr (kOp == MapOp::minimum)
    return smaller(a, b);
  else if constexpr (kOp == MapOp::greater)
    return a > b ? one : zero;
  else if constexpr (kOp == MapOp::greater_equal)
    return a >= b ? one : zero;
  else if constexpr (kOp == MapOp::less)
    return a < b ? one : zero;
  else if constexpr (kOp == MapOp::less_equal)
    return a <= b ? one : zero;
  else if constexpr (kOp == MapOp::equal)
    return a == b ? one : zero;
  else if constexpr (kOp == MapOp::relu_grad)
    return a <= zero ? zero : b;
  else if constexpr (kOp == MapOp::leaky_relu_grad)
    return a > zero ? b : p * b;
  else if constexpr (kOp == MapOp::tanh_grad)
    return b * (one - a * a);
  else if constexpr (kOp == MapOp::sigmoid_grad)
    return b * (a * (one - a));
  else if constexpr (kOp == MapOp::smooth_l1)
    return smooth_l1(a, b, p);
  else if constexpr (kOp == MapOp::squared_difference)
    return squared_difference(a, b);
  else if constexpr (kOp == MapOp::elu_grad)
    return a > zero ? b : b * p * exp(a);
  else if constexpr (kOp == MapOp::gelu_grad)
    return b * gelu_slope(a);
  else if constexpr (kOp == MapOp::gelu_tanh_grad)
    return b * gelu_tanh_slope(a);
  else if constexpr (kOp == MapOp::silu_grad)
    return b * silu_slope(a);
  else if constexpr (kOp == MapOp::softplus_grad)
    return b * sigmoid(a);
}

/// The function of `kOp`; p and q are the scalars. Inputs and scalars that it does not have are ignored.
template <MapOp kOp, bool kIs16Bit, class A>
__device__ __forceinline__ A evaluate(A a, A b, A c, A d, A p, A q) {
  if constexpr (inputs_of(kOp) == 1)
    return evaluate_unary<kOp, kIs16Bit>(a, p, q);
  else if constexpr (inputs_of(kOp) == 2)
    return evaluate_binary<kOp>(a, b, p);
  else if constexpr (kOp == MapOp::squared_difference_grad)
    return q * c * (a - b);
  else if constexpr (kOp == MapOp::smooth_l1_grad)
    return q * c * smooth_l1_slope(a - b, p);
  else if constexpr (kOp == MapOp::scale_around)
    return (a - b) * c + d;
  else if constexpr (kOp == MapOp::addcmul)
    return fma(b, c, a);
  else if constexpr (kOp == MapOp::snake)
    return SnakeFunction<A, kIs16Bit>(b, c)(a);
  else if constexpr (kOp == MapOp::snake_grad_x)
    return d * (A(1) + b * (sin(b * a + b * a) / c));
  else if constexpr (kOp == MapOp::snake_grad_alpha)
    return d * (a * (sin(b * a + b * a) / c));
  else if constexpr (kOp == MapOp::where)
    return a != A(0) ? b : c;
  else {
    static_assert(kOp == MapOp::snake_grad_beta);
    const A s = sin(b * a);
    return -d * (s * s) / (c * c);
  }
}

/// Calls use<op>() if `op` has kInputs inputs.
template <int kInputs, class Use, std::size_t... kOps>
__device__ __forceinline__ void with_op(MapOp op, const Use& use, std::index_sequence<kOps...>) {
  const auto try_op = [&]<MapOp kOp>() {
    if constexpr (inputs_of(kOp) == kInputs)
      if (op == kOp) use.template operator()<kOp>();
  };
  (try_op.template operator()<static_cast<MapOp>(kOps)>(), ...);
}

#endif

}  // namespace polyphase::cuda
