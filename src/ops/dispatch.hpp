#pragma once
// The step between an operation and a device: checks the operands, allocates the output, broadcasts, calls the backend. Not
// differentiable, not for users.

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "device/backend.hpp"

namespace polyphase::ops {

/// Throws DTypeError or DeviceError naming `operation` unless all defined tensors share dtype and device.
void require_alike(const char* operation, std::span<const Tensor> tensors);
/// Throws Error "OPERATION: WHAT is undefined" unless the tensor is defined.
void require_defined(const char* operation, const char* what, const Tensor& tensor);
/// Throws DTypeError unless the tensor is floating point, Error unless it is defined.
void require_floating(const char* operation, const Tensor& tensor);
/// Whether the elements are f16 or bf16.
[[nodiscard]] bool is_half(const Tensor& tensor);
/// A fresh tensor of the broadcast shape with op(inputs...). Throws Error if an input is undefined, DTypeError if inputs of i64
/// are combined with a scalar that is not an integer.
[[nodiscard]] Tensor map(const char* operation, MapOp op, std::initializer_list<Tensor> inputs, MapScalars scalars = {});

/// The functions `steps` of a floating-point tensor, one after another, off the tape: a tensor that is only read
/// (TensorBackend::derived). For parameters, which are written less often than they are read.
[[nodiscard]] Tensor derived(const char* operation, const Tensor& tensor, std::initializer_list<MapStep> steps);

/// The tensor as a view of a shape that it broadcasts to, off the tape.
[[nodiscard]] Tensor broadcast_view(const Tensor& tensor, const Shape& shape);
/// A contiguous tensor as a view of another shape of the same size, off the tape.
[[nodiscard]] Tensor reshaped_view(const Tensor& tensor, const Shape& shape);
/// A fresh () holding q times the sum of op(a, b), two of one shape (Backend::reduce_map), f32 for 16 bits; an empty sum is 0.
[[nodiscard]] Tensor reduce_map(MapOp op, const Tensor& a, const Tensor& b, MapScalars scalars);
/// A fresh tensor with op(a, b, gradient) for a and b of 16 bits and an f32 gradient () (Backend::pair_gradient).
[[nodiscard]] Tensor pair_gradient(MapOp op, const Tensor& a, const Tensor& b, const Tensor& gradient, MapScalars scalars);
/// Which of snake's gradients are needed.
struct SnakeNeeds {
  bool x, alpha, beta;
};
/// Fresh tensors with these gradients, of x's shape, (C) and (C). Inputs: snake's argument x (N, C, L) or (C, L), alpha and
/// beta (C), and the gradient of its result. `added`, unless undefined, is added to x's gradient (SnakeGradients::added) and
/// has x's shape. Empty sums are 0.
[[nodiscard]] SnakeGradients snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                                            const SnakeNeeds& needs, const Tensor& added = {});
/// A fresh tensor of `out_shape` (x's rank, 1 where reduced) holding the reduction; an empty sum is 0.
[[nodiscard]] Tensor reduce(ReduceOp op, const Tensor& x, const Shape& out_shape);
/// Fresh tensors holding Backend::moments of x, f32 or f64, over the dimensions where `kept` has 1.
[[nodiscard]] Moments moments(const Tensor& x, const Shape& kept, double q);

/// What a weight is computed from: v (R, ...) and g (R, 1, ...), f32 or f64.
struct WeightNormInputs {
  Tensor v, g;
};
/// The weights, off the tape, in `dtype` if that is given and v is of f32. They are of one device, and computed there in one
/// launch for each dtype. Throws ShapeError if a g has another shape.
[[nodiscard]] std::vector<NormalizedWeight> normalized_weights(std::span<const WeightNormInputs> inputs,
                                                               std::optional<DType> dtype);
/// One of them on the tape.
[[nodiscard]] Tensor recorded_weight(const NormalizedWeight& weight, const WeightNormInputs& inputs);

/// A weight W (R, ...) of f32 or f64 and the estimates of its singular vectors, (R) and (the rest), contiguous.
struct SpectralNormInputs {
  Tensor W, left, right;
  bool iterates;  ///< whether a step of power iteration comes first, which overwrites the estimates
};
/// The weights W/sigma, off the tape, as normalized_weights().
[[nodiscard]] std::vector<SpectralWeight> spectral_weights(std::span<const SpectralNormInputs> inputs,
                                                           std::optional<DType> dtype);
/// One of them on the tape; W is the input's.
[[nodiscard]] Tensor recorded_weight(const SpectralWeight& weight, const Tensor& W);

}  // namespace polyphase::ops
