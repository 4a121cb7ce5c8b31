#pragma once
// Rows of a table, by number, and the numbers of rows: vector quantisation.

#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// index (...) i64 in [0, V), weight (V, D) -> (..., D): row index[...] of weight. Differentiable: the gradients of a row that
/// occurs several times are added. Throws ShapeError for an index out of range, as index_select() does.
[[nodiscard]] Tensor embedding(const Tensor& index, const Tensor& weight);

/// codes (N, Q, L) i64, Q >= 1 weights (V, D), whose V may differ -> (N, L, D): the sum over q, in order, of the rows codes[:,
/// q] of weights[q], in one pass: residual vector quantisation. At most 64 weights if gradients are recorded. Differentiable in
/// the weights. Throws ShapeError for a code out of range, as index_select() does, and for shapes that do not fit.
[[nodiscard]] Tensor embedding_sum(const Tensor& codes, const std::vector<Tensor>& weights);

/// x (..., D), codebook (V, D) -> (...) i64: the row of the codebook with the smallest squared distance to x, the first one
/// where several are equal. Not differentiable. f16 and bf16 are computed in f32, whatever AutocastGuard there is. Throws
/// ShapeError, DTypeError, DeviceError where the two do not go together.
[[nodiscard]] Tensor nearest_code(const Tensor& x, const Tensor& codebook);

/// `value` forward, x backward: the elements of `value`, whose gradient goes to x as it is and not to `value` (Bengio et al.
/// 2013, arXiv 1308.3432). Throws ShapeError unless both have one shape.
[[nodiscard]] Tensor straight_through(const Tensor& x, const Tensor& value);

/// Throws ShapeError "OPERATION: expected codes in [0, SIZE), got CODE" for codes on the CPU, i64. On a GPU embedding() checks
/// without waiting.
void check_codes(const char* operation, const Tensor& codes, std::int64_t size);

struct EmbeddingTable;
/// As embedding_sum(), for codebooks kept as sums: entries are rows/max(usage, least_usage), computed in at least f32. Not
/// differentiable. Internal.
[[nodiscard]] Tensor entries_of_means(const Tensor& codes, const std::vector<EmbeddingTable>& tables, double least_usage);

}  // namespace polyphase
