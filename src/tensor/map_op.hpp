#pragma once
// The elementwise functions and reductions of a backend. In a separate header, so that kernels need not include tensors.

#include <cstdint>

namespace polyphase {

/// Elementwise functions. a, b, c, d are the inputs in order; p, q are the scalars of MapScalars; g is an incoming gradient.
enum class MapOp : std::uint8_t {
  // clang-format off
  // arithmetic
  add, sub, mul, div,              // a op b
  add_scaled,                      // a + p*b
  affine,                          // p*a + q
  scale_around,                    // (a-b)*c + d
  addcmul,                         // a + b*c
  maximum, minimum, pow_scalar, div_scalar,  // max(a,b)  min(a,b)  a^p  a/p
  neg, abs, sign, square, sqrt, rsqrt, reciprocal, exp, log, sin, cos, clamp,  // clamp to [p, q]
  greater, greater_equal, less, less_equal, equal,                             // 0 or 1
  where,                           // a != 0 ? b : c
  // activations and their gradients (a = saved tensor as named, b = g)
  relu, leaky_relu, elu, gelu, gelu_tanh, silu, tanh, sigmoid,   // leaky_relu: slope p; elu: alpha p
  relu_grad,        // a = y
  leaky_relu_grad,  // a = x
  elu_grad,         // a = x
  gelu_grad, gelu_tanh_grad, silu_grad,  // a = x
  tanh_grad, sigmoid_grad,               // a = y
  softplus, softplus_grad,               // log(1 + exp(a)); a = x
  snake,            // a + sin(b*a)^2 / c          (x, alpha, beta); Snake has beta = alpha
  snake_grad_x,     // g * (1 + b*sin(2*b*a)/c)    (x, alpha, beta, g)
  snake_grad_alpha, // g * a*sin(2*b*a)/c          (x, alpha, beta, g)
  snake_grad_beta,  // -g * sin(b*a)^2/c^2         (x, alpha, beta, g)
  // losses
  squared_difference,       // (a-b)^2
  squared_difference_grad,  // q*g*(a-b)                   (a, b, g)
  smooth_l1,        // |d|<p ? d*d/(2p) : |d|-p/2  with d = a-b; p = 0: |d|
  smooth_l1_grad,   // q*g*(derivative by a)       (a, b, g)
  // clang-format on
};

struct MapScalars {
  double p = 0;
  double q = 0;
};

/// An activation that a convolution can apply: the MapOp of the same name, or none.
enum class Activation : std::uint8_t { none, relu, leaky_relu, tanh, snake };

/// The values outside a row.
enum class PaddingMode : std::uint8_t { zeros, reflect, replicate };

enum class ReduceOp : std::uint8_t { sum, sum_of_squares, sum_of_abs, max, min };

}  // namespace polyphase
