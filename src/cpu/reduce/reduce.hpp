#pragma once
// Reductions over any set of dimensions.

#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// Reduces the dimensions in which out.size(d) is 1 and in.size(d) is not. `out` is contiguous, of in's rank and dtype; `in`
/// has any strides. Floating-point sums are accumulated in double, in pieces that are added pairwise, and rounded once. The
/// order depends on shape and strides alone, so the bits depend neither on the thread count nor on the instruction set. i64
/// wraps around. In max and min NaN wins; an empty set throws ShapeError.
void reduce(ReduceOp op, const Tensor& out, const Tensor& in);
/// As in Backend::reduce_map; each element's value is rounded to the dtype before it is added, as in map().
void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars);

}  // namespace polyphase::cpu
