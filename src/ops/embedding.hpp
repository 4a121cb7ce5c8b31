#pragma once
// Rows of a table, by number.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// index (...) i64 in [0, V), weight (V, D) -> (..., D): row index[...] of weight. Differentiable: gradients of rows that are
/// taken several times add up. Throws ShapeError for an index outside, when index_select() does.
[[nodiscard]] Tensor embedding(const Tensor& index, const Tensor& weight);

}  // namespace polyphase
