#pragma once
// Gather, scatter and overlap-add along the last dimension. All tensors contiguous; shapes as in tensor/tensor_backend.hpp.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// Throws ShapeError if a position of index (J) is outside [0, length).
void check_index(const Tensor& index, std::int64_t length);
/// out (R, J): out[r, j] = in[r, index[j]]; every index in range.
void gather(const Tensor& out, const Tensor& in, const Tensor& index);
/// out (R, I) = 0, then out[r, index[j]] += in[r, j] in the order of j. 16-bit types are summed in f32.
void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index);
/// out (R, L) = 0, then out[r, f*step + i] += in[r, f, i] in the order of f. 16-bit types are summed in f32.
void fold(const Tensor& out, const Tensor& in, std::int64_t step);

}  // namespace polyphase::cpu
