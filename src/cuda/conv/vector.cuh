#pragma once
// Small pieces that the convolution kernels share.

#include <type_traits>

namespace polyphase::cuda {

/// The accumulator type for elements of T.
template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};

/// kCount neighbouring words, 16 bytes at a time; `from` is 16-byte aligned.
template <class A, int kCount>
__device__ __forceinline__ void load_vector(const A* from, A (&to)[kCount]) {
  using Quad = std::conditional_t<sizeof(A) == 4, float4, double2>;
  constexpr int kWords = sizeof(Quad) / sizeof(A);
#pragma unroll
  for (int i = 0; i < kCount / kWords; ++i) reinterpret_cast<Quad*>(to)[i] = reinterpret_cast<const Quad*>(from)[i];
}

}  // namespace polyphase::cuda
