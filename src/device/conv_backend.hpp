#pragma once
// The convolutions of a device, and what is fused with them. Not for users. Tensors are contiguous.

#include <array>
#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "conv/residual_unit.hpp"
#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {

/// The prologue: what is computed of the source, rounded as by the MapOp.
struct ConvPrologue {
  Activation activation = Activation::none;  ///< none, relu, leaky_relu or snake
  double slope = 0;                          ///< for leaky_relu
  Tensor alpha{}, beta{};                    ///< for snake: (C), of the source's channels and dtype, contiguous
  [[nodiscard]] bool is_needed() const { return activation != Activation::none; }
};

/// The epilogue: what follows the sums of a convolution, computed and rounded as by the MapOps one after another.
struct ConvEpilogue {
  Activation activation = Activation::none;
  double slope = 0;  ///< for leaky_relu
  Tensor alpha{};    ///< for snake: (C), of the output's channels and dtype, contiguous
  Tensor beta{};     ///< same as alpha
  /// May be undefined; else of the output's shape and dtype, contiguous, and out = residual + scale*activation(sums + bias)
  /// with one rounding of the product's sum (MapOp::add_scaled).
  Tensor residual{};
  double scale = 1;  ///< factor of what is added to the residual
  /// May be undefined; else of the output's shape and dtype, contiguous: receives sums + bias, the activation's argument.
  Tensor before{};
  /// May be undefined; else of the output's shape and dtype, contiguous: the argument of derivative_of(activation). The sums
  /// are multiplied by that derivative instead of activated; not with snake or `before`.
  Tensor derivative{};
  /// Whether anything follows the sums.
  [[nodiscard]] bool is_needed() const { return activation != Activation::none || residual.defined() || before.defined(); }
};

/// Gradients through snake, named after their tensors; undefined ones are not needed.
struct SnakeGradients {
  Tensor x{};              ///< (N, C, L), contiguous
  Tensor alpha{}, beta{};  ///< (C), contiguous
  /// Not a result: x's gradient is added to it after it is rounded, like x. May be undefined.
  Tensor added{};
};

/// A convolution of a residual unit: tensors of the unit's dtype.
struct UnitConvTensors {
  Tensor weight{};         ///< (C, C, K), of a depthwise one (C, 1, K)
  Tensor bias{};           ///< (C) or undefined
  Tensor alpha{}, beta{};  ///< (C), of the Snake that it reads through; undefined without one
};

/// What follows a unit's result y: out = act((other + y)/divisor), each step rounded to the dtype as by
/// TensorBackend::average_of(); act(v) = v < 0 ? slope*v : v.
struct UnitAverageTensors {
  Tensor other{};  ///< of the unit's shape and dtype, contiguous; undefined: out = y
  double divisor = 1, slope = 1;
};

/// A device's convolutions (conv/problem.hpp); `bias` may be undefined.
class ConvBackend {
 public:
  virtual ~ConvBackend() = default;

  [[nodiscard]] virtual std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction,
                                                                 Algorithm algorithm, Precision precision) = 0;
  virtual void conv_forward(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                            Algorithm algorithm, Precision precision) = 0;
  virtual void conv_dgrad(const ConvProblem& problem, const Tensor& y, const Tensor& w, const Tensor& bias, const Tensor& x,
                          Algorithm algorithm, Precision precision) = 0;
  virtual void conv_wgrad(const ConvProblem& problem, const Tensor& x, const Tensor& y, const Tensor& w, Algorithm algorithm,
                          Precision precision) = 0;

  /// out = epilogue(direction(prologue(source), w) + bias), direction forward or dgrad, `bias` of out's channels; the bits of
  /// map() for the prologue, the convolution, map() for the activation and map() for the residual.
  virtual void conv_activated(const ConvProblem& problem, ConvDirection direction, const Tensor& source, const Tensor& w,
                              const Tensor& bias, const Tensor& out, const ConvPrologue& prologue, const ConvEpilogue& epilogue,
                              Algorithm algorithm, Precision precision) = 0;
  /// Whether conv_activated() applies the epilogue where it stores its results, without an extra pass over memory. Only the
  /// presence of `epilogue`'s tensors matters.
  [[nodiscard]] virtual bool fuses(const ConvProblem& problem, ConvDirection direction, const ConvEpilogue& epilogue,
                                   Algorithm algorithm, Precision precision) = 0;
  /// Computes `unit`, and what follows it, into `out` in one kernel and returns true; returns false, with nothing done, if the
  /// device has none for it or computes it faster in steps. `out` is not x, but may be `average.other`.
  [[nodiscard]] virtual bool residual_unit(const ResidualUnit& /*unit*/, const Tensor& /*x*/,
                                           const std::array<UnitConvTensors, 2>& /*convs*/,
                                           const UnitAverageTensors& /*average*/, const Tensor& /*out*/) {
    return false;
  }
  /// The backward pass: in = map(derivative, result, gradient) and sums (C) = in summed over the other two dimensions, in an
  /// order fixed by the shape. `result` is the result of the activation, which is not snake; (N, C, L), contiguous, not empty.
  /// Without an activation `result` and `in` are not used and `gradient` is summed. `sums` may be undefined.
  virtual void activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient, const Tensor& in,
                                   const Tensor& sums) = 0;

  /// The gradients of MapOp::snake from its argument x (N, C, L), alpha (C), beta (C) and the result's gradient, all contiguous
  /// and not empty. Those of alpha and beta are sums over the other two dimensions in an order fixed by the shape. With
  /// `out.added` out.x has the bits of map(MapOp::add) of it and x's gradient.
  virtual void snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                              const SnakeGradients& out) = 0;
};

/// The MapOp of an activation (any but none), and that of its derivative computed from its result (any but none and snake).
[[nodiscard]] MapOp map_op_of(Activation activation);
[[nodiscard]] MapOp derivative_of(Activation activation);
}  // namespace polyphase
