#pragma once
// Elementwise functions of tensors of any strides.

#include <span>

#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out[i] = op(inputs[0][i], ...); inputs (at most 4) have out's shape and dtype, and any strides. 16-bit types are computed in
/// f32 and rounded once. i64: arithmetic and comparisons only (division truncates; division by zero gives 0); other functions
/// throw DTypeError. The bits depend neither on layout nor on the thread count. f32 functions are within 2 ulp of the exact
/// value, except gelu and the gradients of activations: within 4e-7 of the larger of |value| and 1.
void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars);

/// map() for i64.
void map_i64(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars);

}  // namespace polyphase::cpu
