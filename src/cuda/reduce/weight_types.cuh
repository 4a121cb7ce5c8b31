#pragma once
// The element types of a normalised weight.

#include "cuda/kernel/elements.cuh"

namespace polyphase::cuda {

/// Calls function(T{}, W{}) with the dtypes of what a weight is computed from, f32 or f64, and of the weight, which may be of
/// 16 bits.
template <class Function>
void with_weight_types(DType from, DType weight, const Function& function) {
  if (from == DType::f64) return function(double{}, double{});
  if (weight == DType::f16) return function(float{}, __half{});
  if (weight == DType::bf16) return function(float{}, __nv_bfloat16{});
  function(float{}, float{});
}

}  // namespace polyphase::cuda
