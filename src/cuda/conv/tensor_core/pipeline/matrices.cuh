#pragma once
// Sums in registers as matrices of 8 x 8 16-bit numbers, the unit that ldmatrix and stmatrix move (ptx/mma.cuh).

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace polyphase::cuda::tensor_core {

/// Two neighbouring numbers in a word.
template <class T>
struct Pair16;
template <>
struct Pair16<__half> {
  using Pair = __half2;
  static __device__ __forceinline__ float2 floats(Pair pair) { return __half22float2(pair); }
  static __device__ __forceinline__ Pair rounded(float low, float high) { return __floats2half2_rn(low, high); }
};
template <>
struct Pair16<__nv_bfloat16> {
  using Pair = __nv_bfloat162;
  static __device__ __forceinline__ float2 floats(Pair pair) { return __bfloat1622float2(pair); }
  static __device__ __forceinline__ Pair rounded(float low, float high) { return __floats2bfloat162_rn(low, high); }
};
template <class T>
__device__ __forceinline__ typename Pair16<T>::Pair pair_of(std::uint32_t word) {
  return *reinterpret_cast<const typename Pair16<T>::Pair*>(&word);
}
template <class T>
__device__ __forceinline__ float2 floats_of(std::uint32_t word) {
  return Pair16<T>::floats(pair_of<T>(word));
}
template <class T>
__device__ __forceinline__ std::uint32_t word_of(typename Pair16<T>::Pair pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <class T>
__device__ __forceinline__ std::uint32_t rounded_word(float low, float high) {
  const typename Pair16<T>::Pair pair = Pair16<T>::rounded(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Both numbers of a word by LeakyReLU, 0 < slope <= 1: v < slope*v where v is negative; NaN is the maximum of two NaN.
template <class T>
__device__ __forceinline__ std::uint32_t leaky_word(std::uint32_t word, float slope) {
  const float2 v = floats_of<T>(word);
  return word_of<T>(__hmax2(pair_of<T>(word), Pair16<T>::rounded(slope * v.x, slope * v.y)));
}
/// The sums of two words' numbers, rounded: those of an f32 addition that is rounded then (24 >= 2*11 + 2 bits).
template <class T>
__device__ __forceinline__ std::uint32_t added_word(std::uint32_t a, std::uint32_t b) {
  return word_of<T>(__hadd2(pair_of<T>(a), pair_of<T>(b)));
}

/// The first of two neighbouring sums in matrix i of four (wgmma's fragment, ptx/wgmma.cuh: h = i%2, g = 2*step + i/2).
[[nodiscard]] __device__ __forceinline__ constexpr int sum_of_matrix(int step, int i) {
  return 4 * (2 * step + i / 2) + 2 * (i % 2);
}
/// The rounded sums of four matrices.
template <class T, int kCount>
__device__ __forceinline__ void round_matrices(const float (&sums)[kCount], int step, std::uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = rounded_word<T>(sums[sum_of_matrix(step, i)], sums[sum_of_matrix(step, i) + 1]);
}
/// sums += four matrices.
template <class T, int kCount>
__device__ __forceinline__ void add_matrices(const std::uint32_t (&words)[4], int step, float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = floats_of<T>(words[i]);
    sums[sum_of_matrix(step, i)] += x.x;
    sums[sum_of_matrix(step, i) + 1] += x.y;
  }
}

}  // namespace polyphase::cuda::tensor_core
