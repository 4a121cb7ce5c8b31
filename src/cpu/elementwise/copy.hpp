#pragma once
// Copies between tensors of any strides and dtypes, and constant fills.

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// out = in, element by element, of the same shape. To a narrower floating-point type: rounded once, to nearest even. To i64:
/// truncated; values outside the range give the nearest end of it, NaN gives 0.
void copy(const Tensor& out, const Tensor& in);
/// Every element of `out` becomes `value`, converted as in copy().
void fill(const Tensor& out, double value);
/// out[i] = start + i*step, computed in f64 and rounded; contiguous.
void arange(const Tensor& out, double start, double step);

/// Converts `count` contiguous elements from one dtype to another, as in copy().
void convert_elements(DType to_type, void* to, DType from_type, const void* from, std::int64_t count);

}  // namespace polyphase::cpu
