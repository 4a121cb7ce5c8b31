#pragma once
// Rows of a table, by number.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// index (...) i64 in [0, V), weight (V, D) -> (..., D): row index[...] of weight. Differentiable: the gradients of a row that
/// occurs several times are added. Throws ShapeError for an index out of range, as index_select() does.
[[nodiscard]] Tensor embedding(const Tensor& index, const Tensor& weight);

}  // namespace polyphase
