#pragma once
// Elements of the user's arrays as vectors of the type in which they are computed, for the ISA sources (cpu/isa_target.hpp).

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/isa_half.hpp"

namespace polyphase::cpu::POLYPHASE_ISA {

POLYPHASE_INLINE float widen(float value) { return value; }
POLYPHASE_INLINE double widen(double value) { return value; }
POLYPHASE_INLINE float widen(Half value) { return f32_from_f16(value.bits); }
POLYPHASE_INLINE float widen(BFloat16 value) { return f32_from_bf16(value.bits); }

POLYPHASE_INLINE void narrow(float value, float* to) { *to = value; }
POLYPHASE_INLINE void narrow(double value, double* to) { *to = value; }
POLYPHASE_INLINE void narrow(float value, Half* to) { to->bits = f16_from_f32(value); }
POLYPHASE_INLINE void narrow(float value, BFloat16* to) { to->bits = bf16_from_f32(value); }

/// Loads and widens a vector of elements from unaligned memory. The 16-bit loops below become a few vector instructions each.
POLYPHASE_INLINE Vector<float> load_as(const float* from) { return load(from); }
POLYPHASE_INLINE Vector<double> load_as(const double* from) { return load(from); }
template <class E>
POLYPHASE_INLINE Vector<float> load_as(const E* from) {
  float value[kLanes<float>];
  for (int i = 0; i < kLanes<float>; ++i) value[i] = widen(from[i]);
  return load(value);
}

/// Rounds a vector to elements and stores it to unaligned memory.
POLYPHASE_INLINE void store_as(float* to, Vector<float> v) { store<float>(to, v); }
POLYPHASE_INLINE void store_as(double* to, Vector<double> v) { store<double>(to, v); }
template <class E>
POLYPHASE_INLINE void store_as(E* to, Vector<float> v) {
  float value[kLanes<float>];
  store<float>(value, v);
  for (int i = 0; i < kLanes<float>; ++i) narrow(value[i], to + i);
}

// bf16 as whole vectors: widening is a shift; rounding is as in isa_half.hpp's bf16_from_f32.
typedef std::uint16_t HalfBits __attribute__((vector_size(kVectorBytes / 2)));
POLYPHASE_INLINE Vector<float> load_as(const BFloat16* from) {
  HalfBits half;
  std::memcpy(&half, from, sizeof half);
  const Vector<std::uint32_t> bits = __builtin_convertvector(half, Vector<std::uint32_t>) << 16;
  Vector<float> value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
POLYPHASE_INLINE void store_as(BFloat16* to, Vector<float> v) {
  Vector<std::uint32_t> bits;
  std::memcpy(&bits, &v, sizeof bits);
  const Vector<std::uint32_t> upper = bits >> 16;
  const Vector<std::uint32_t> rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
  const HalfBits half = __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? upper | 0x40u : rounded, HalfBits);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
}

#if defined(__F16C__)
POLYPHASE_INLINE Vector<float> load_as(const Half* from) {
#if defined(__AVX512F__)
  __m256i half;
  std::memcpy(&half, from, sizeof half);
  return _mm512_cvtph_ps(half);
#else
  __m128i half;
  std::memcpy(&half, from, sizeof half);
  return _mm256_cvtph_ps(half);
#endif
}
POLYPHASE_INLINE void store_as(Half* to, Vector<float> v) {
#if defined(__AVX512F__)
  const __m256i half = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#else
  const __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#endif
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
}
#endif

// Lane shuffles: even(a, b) = a0 a2 .. b0 b2 ..; zip_low(a, b) = a0 b0 a1 b1 .. and zip_high the rest of it.
template <int lanes>
struct Shuffle;
template <>
struct Shuffle<2> {
  template <class V>
  POLYPHASE_INLINE static V even(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_high(V a, V b) {
    return __builtin_shufflevector(a, b, 1, 3);
  }
};
template <>
struct Shuffle<4> {
  template <class V>
  POLYPHASE_INLINE static V even(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_high(V a, V b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
};
template <>
struct Shuffle<8> {
  template <class V>
  POLYPHASE_INLINE static V even(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_high(V a, V b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct Shuffle<16> {
  template <class V>
  POLYPHASE_INLINE static V even(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_low(V a, V b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  template <class V>
  POLYPHASE_INLINE static V zip_high(V a, V b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
};

}  // namespace polyphase::cpu::POLYPHASE_ISA
