#pragma once
// Every MapOp as a function of one element; the formulas and edge cases are those of cpu/elementwise/elementwise_functions.hpp.
//
// apply_light() has the operations of a few instructions, apply_heavy() those that call a function; kernels of the former keep
// more vectors outstanding. Each is a switch over the operation outside the loop over a thread's elements, so that a thread
// takes one uniform branch.

#include <type_traits>

#include "tensor/map_op.hpp"

namespace polyphase::cuda {

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

/// Whether `op` calls exp, sin, erf or the like, or reads four operands, which also fill the outstanding loads.
constexpr bool is_heavy(MapOp op) {
  switch (op) {
    case MapOp::scale_around:
    case MapOp::pow_scalar:
    case MapOp::exp:
    case MapOp::log:
    case MapOp::sin:
    case MapOp::cos:
    case MapOp::elu:
    case MapOp::gelu:
    case MapOp::gelu_tanh:
    case MapOp::silu:
    case MapOp::tanh:
    case MapOp::sigmoid:
    case MapOp::softplus:
    case MapOp::elu_grad:
    case MapOp::gelu_grad:
    case MapOp::gelu_tanh_grad:
    case MapOp::silu_grad:
    case MapOp::softplus_grad:
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

/// Calls each(function of (a, b, c, d)) with the function of `op`; p and q are the scalars.
template <class A, int kInputs, class Each>
__device__ __forceinline__ void apply_light(MapOp op, A p, A q, const Each& each) {
  const A zero(0), one(1);
  if constexpr (kInputs == 1) {
    switch (op) {
      case MapOp::affine:
        return each([=](A a, A, A, A) { return p * a + q; });
      case MapOp::div_scalar:
        return each([=](A a, A, A, A) { return a / p; });
      case MapOp::neg:
        return each([=](A a, A, A, A) { return -a; });
      case MapOp::abs:
        return each([=](A a, A, A, A) { return fabs(a); });
      case MapOp::sign:
        return each([=](A a, A, A, A) { return a > zero ? one : a < zero ? -one : zero; });
      case MapOp::square:
        return each([=](A a, A, A, A) { return a * a; });
      case MapOp::sqrt:
        return each([=](A a, A, A, A) { return sqrt(a); });
      case MapOp::rsqrt:
        return each([=](A a, A, A, A) { return one / sqrt(a); });
      case MapOp::reciprocal:
        return each([=](A a, A, A, A) { return one / a; });
      case MapOp::clamp:
        return each([=](A a, A, A, A) { return a < p ? p : a > q ? q : a; });
      case MapOp::relu:
        return each([=](A a, A, A, A) { return a < zero ? zero : a; });
      case MapOp::leaky_relu:
        return each([=](A a, A, A, A) { return a < zero ? p * a : a; });
      default:
        return;
    }
  } else if constexpr (kInputs == 2) {
    switch (op) {
      case MapOp::add:
        return each([=](A a, A b, A, A) { return a + b; });
      case MapOp::sub:
        return each([=](A a, A b, A, A) { return a - b; });
      case MapOp::mul:
        return each([=](A a, A b, A, A) { return a * b; });
      case MapOp::div:
        return each([=](A a, A b, A, A) { return a / b; });
      case MapOp::add_scaled:
        return each([=](A a, A b, A, A) { return fma(p, b, a); });  // as in cuda/conv/epilogue/epilogue.cuh
      case MapOp::maximum:
        return each([=](A a, A b, A, A) { return larger(a, b); });
      case MapOp::minimum:
        return each([=](A a, A b, A, A) { return smaller(a, b); });
      case MapOp::greater:
        return each([=](A a, A b, A, A) { return a > b ? one : zero; });
      case MapOp::greater_equal:
        return each([=](A a, A b, A, A) { return a >= b ? one : zero; });
      case MapOp::less:
        return each([=](A a, A b, A, A) { return a < b ? one : zero; });
      case MapOp::less_equal:
        return each([=](A a, A b, A, A) { return a <= b ? one : zero; });
      case MapOp::equal:
        return each([=](A a, A b, A, A) { return a == b ? one : zero; });
      case MapOp::relu_grad:
        return each([=](A a, A g, A, A) { return a <= zero ? zero : g; });
      case MapOp::leaky_relu_grad:
        return each([=](A a, A g, A, A) { return a > zero ? g : p * g; });
      case MapOp::tanh_grad:
        return each([=](A a, A g, A, A) { return g * (one - a * a); });
      case MapOp::sigmoid_grad:
        return each([=](A a, A g, A, A) { return g * (a * (one - a)); });
      case MapOp::smooth_l1:
        return each([=](A a, A b, A, A) { return smooth_l1(a, b, p); });
      case MapOp::squared_difference:
        return each([=](A a, A b, A, A) { return squared_difference(a, b); });
      default:
        return;
    }
  } else if constexpr (kInputs == 3) {
    switch (op) {
      case MapOp::squared_difference_grad:
        return each([=](A a, A b, A g, A) { return q * g * (a - b); });
      case MapOp::smooth_l1_grad:
        return each([=](A a, A b, A g, A) { return q * g * smooth_l1_slope(a - b, p); });
      default:  // where
        return each([=](A a, A b, A c, A) { return a != zero ? b : c; });
    }
  }
}

template <class A, int kInputs, class Each>
__device__ __forceinline__ void apply_heavy(MapOp op, A p, const Each& each) {
  const A zero(0), one(1);
  if constexpr (kInputs == 1) {
    switch (op) {
      case MapOp::pow_scalar:
        return each([=](A a, A, A, A) { return pow(a, p); });
      case MapOp::exp:
        return each([=](A a, A, A, A) { return exp(a); });
      case MapOp::log:
        return each([=](A a, A, A, A) { return log(a); });
      case MapOp::sin:
        return each([=](A a, A, A, A) { return sin(a); });
      case MapOp::cos:
        return each([=](A a, A, A, A) { return cos(a); });
      case MapOp::elu:
        return each([=](A a, A, A, A) { return a > zero ? a : p * expm1(a > zero ? zero : a); });
      case MapOp::gelu:
        return each([=](A a, A, A, A) { return a * normal_below(a); });
      case MapOp::gelu_tanh:
        return each([=](A a, A, A, A) { return a * gelu_gate(a); });
      case MapOp::silu:
        return each([=](A a, A, A, A) { return a * sigmoid(a); });
      case MapOp::tanh:
        return each([=](A a, A, A, A) { return tanh(a); });
      case MapOp::sigmoid:
        return each([=](A a, A, A, A) { return sigmoid(a); });
      case MapOp::softplus:
        return each([=](A a, A, A, A) { return (a < zero ? zero : a) + log1p(exp(-fabs(a))); });
      default:
        return;
    }
  } else if constexpr (kInputs == 2) {
    switch (op) {
      case MapOp::elu_grad:
        return each([=](A a, A g, A, A) { return a > zero ? g : g * p * exp(a); });
      case MapOp::gelu_grad:
        return each([=](A a, A g, A, A) { return g * gelu_slope(a); });
      case MapOp::gelu_tanh_grad:
        return each([=](A a, A g, A, A) { return g * gelu_tanh_slope(a); });
      case MapOp::silu_grad:
        return each([=](A a, A g, A, A) { return g * silu_slope(a); });
      case MapOp::softplus_grad:
        return each([=](A a, A g, A, A) { return g * sigmoid(a); });
      default:
        return;
    }
  } else if constexpr (kInputs == 3) {
    return each([=](A x, A alpha, A beta, A) {  // snake
      const A s = sin(alpha * x);
      return x + s * s / beta;
    });
  } else {
    switch (op) {
      case MapOp::scale_around:
        return each([=](A a, A b, A c, A d) { return (a - b) * c + d; });
      case MapOp::snake_grad_x:
        return each([=](A x, A alpha, A beta, A g) { return g * (one + alpha * (sin(alpha * x + alpha * x) / beta)); });
      case MapOp::snake_grad_alpha:
        return each([=](A x, A alpha, A beta, A g) { return g * (x * (sin(alpha * x + alpha * x) / beta)); });
      default:  // snake_grad_beta
        return each([=](A x, A alpha, A beta, A g) {
          const A s = sin(alpha * x);
          return -g * (s * s) / (beta * beta);
        });
    }
  }
}

#endif

}  // namespace polyphase::cuda
