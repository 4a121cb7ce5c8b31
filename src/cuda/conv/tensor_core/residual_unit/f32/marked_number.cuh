#pragma once
// The numbers of the operands of marked blocks (marked.cuh).
//
// To the accuracy of tf32 such a number is one tf32. To that of f32 it is two, one after the other in the same place: the
// tensor cores do not read the low 13 bits of a word, so it begins as all 32 bits, moved by half of the last bit they read.
// What they read is the nearest tf32, and all of the number can be had from the word. rest() replaces it by what is left of it.

#include <cstdint>

#include "cuda/ptx/tf32.cuh"

namespace polyphase::cuda::tensor_core {

template <class Shape>
struct MarkedNumber {
  static constexpr std::uint32_t kHalf = 1U << 12, kUnread = 2 * kHalf - 1;

  /// The word for a number: infinite, NaN, or finite and not the largest.
  __device__ __forceinline__ static float of(float v) {
    if constexpr (Shape::kPasses == 1) return ptx::to_finite_tf32(v);
    if (isinf(v)) return v;
    if (isnan(v)) return __uint_as_float(0x7fc00000U);
    return __uint_as_float(__float_as_uint(v) + kHalf);
  }
  /// The nearest tf32 to what rest(word) and the tensor cores' word are the sum of. NaN stays; an infinity leaves nothing.
  __device__ __forceinline__ static float rest(float word) {
    if (isinf(word)) return 0.0F;
    const std::uint32_t bits = __float_as_uint(word);
    return ptx::to_tf32(__uint_as_float(bits - kHalf) - __uint_as_float(bits & ~kUnread));
  }
};

}  // namespace polyphase::cuda::tensor_core
