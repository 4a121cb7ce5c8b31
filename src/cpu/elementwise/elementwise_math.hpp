#pragma once
// exp, log, sin, cos, tanh, erf... of whole vectors, for the ISA sources (rules: cpu/isa_target.hpp).
//
// f32: branchless polynomials, coefficients from Cephes (S. Moshier, single precision) unless stated otherwise. Errors measured
// by tests/cpu/test_elementwise.cpp: at most 2 ulp unless stated otherwise. f64: the C library, lane by lane.

#include "cpu/isa_target.hpp"

namespace polyphase::cpu::POLYPHASE_ISA {

typedef Vector<float> F32;
typedef Vector<double> F64;
typedef Vector<std::int32_t> I32;
typedef std::int64_t I64 __attribute__((vector_size(kVectorBytes)));

/// The same bits as another type.
template <class To, class From>
POLYPHASE_INLINE To as(From value) {
  static_assert(sizeof(To) == sizeof(From), "only a reading of the same bits");
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

/// A vector of one number. V is F32 or F64.
template <class V>
POLYPHASE_INLINE V constant(double value) {
  return broadcast(static_cast<decltype(V{}[0] + V{}[0])>(value));
}

POLYPHASE_INLINE F32 sqrt(F32 x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__x86_64__)
  return _mm_sqrt_ps(x);
#else
  return vsqrtq_f32(x);
#endif
}
POLYPHASE_INLINE F64 sqrt(F64 x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(x);
#elif defined(__x86_64__)
  return _mm_sqrt_pd(x);
#else
  return vsqrtq_f64(x);
#endif
}

POLYPHASE_INLINE F32 abs(F32 x) { return as<F32>(as<I32>(x) & 0x7fffffff); }
POLYPHASE_INLINE F64 abs(F64 x) { return as<F64>(as<I64>(x) & 0x7fffffffffffffff); }

/// True where any lane exceeds `limit` or is NaN.
POLYPHASE_INLINE bool any_beyond(F32 x, float limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(x, broadcast(limit), _CMP_NLE_UQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(x, broadcast(limit), _CMP_NLE_UQ)) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_ps(_mm_cmpnle_ps(x, broadcast(limit))) != 0;
#else
  return vminvq_u32(vcleq_f32(x, broadcast(limit))) == 0;
#endif
}

/// 1.5 * 2^23: added to a float below 2^22 it rounds it to an integer, which is then in the low bits.
inline constexpr float kRound = 0x1.8p23f;

/// r and n with x = n ln 2 + r, |r| <= ln(2)/2.
struct ExpParts {
  F32 r;
  I32 n;
};
POLYPHASE_INLINE ExpParts split_exp(F32 x) {
  const F32 rounded = x * 1.44269504089f + kRound;
  const F32 n = rounded - kRound;
  const F32 r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts; the first product is exact
  return {r, as<I32>(rounded) - as<I32>(broadcast(kRound))};
}
/// exp(r) - 1 for small r.
POLYPHASE_INLINE F32 exp_fraction(F32 r) {
  F32 p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  return fma(p, r * r, r);
}
POLYPHASE_INLINE F32 power_of_two(I32 n) { return as<F32>((n + 127) << 23); }

/// Subnormal results are rounded once. NaN stays: every comparison with it is false.
POLYPHASE_INLINE F32 exp(F32 x) {
  x = x > 89.0f ? broadcast(89.0f) : x;
  x = x < -104.0f ? broadcast(-104.0f) : x;
  const ExpParts parts = split_exp(x);
  const F32 y = exp_fraction(parts.r) + 1.0f;
  const I32 half = parts.n >> 1;  // two steps, because 2^n may not be a normal number
  return y * power_of_two(half) * power_of_two(parts.n - half);
}
/// exp(x) - 1 without cancellation, for x <= 0 (and NaN).
POLYPHASE_INLINE F32 expm1_negative(F32 x) {
  x = x < -87.0f ? broadcast(-87.0f) : x;
  const ExpParts parts = split_exp(x);
  const F32 scale = power_of_two(parts.n);
  return fma(exp_fraction(parts.r), scale, scale - 1.0f);
}

POLYPHASE_INLINE F32 log(F32 x) {
  const I32 tiny = x < 0x1p-126f;
  const F32 scaled = tiny ? x * 0x1p23f : x;
  const Vector<std::uint32_t> bits = as<Vector<std::uint32_t>>(scaled);
  // The exponent is taken such that the fraction m lies in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2).
  const I32 from_root = as<I32>(bits - 0x3f3504f3u);  // wraps around where x is negative: such results are not used
  const I32 exponent = (from_root >> 23) + (tiny & -23);
  const F32 m = as<F32>((from_root & 0x007fffff) + 0x3f3504f3);
  const F32 e = __builtin_convertvector(exponent, F32);
  const F32 f = m - 1.0f;
  const F32 z = f * f;
  F32 p = broadcast(7.0376836292e-2f);
  p = fma(p, f, broadcast(-1.1514610310e-1f));
  p = fma(p, f, broadcast(1.1676998740e-1f));
  p = fma(p, f, broadcast(-1.2420140846e-1f));
  p = fma(p, f, broadcast(1.4249322787e-1f));
  p = fma(p, f, broadcast(-1.6668057665e-1f));
  p = fma(p, f, broadcast(2.0000714765e-1f));
  p = fma(p, f, broadcast(-2.4999993993e-1f));
  p = fma(p, f, broadcast(3.3333331174e-1f));
  F32 y = f * z * p;
  y = fma(e, broadcast(-2.12194440e-4f), y);
  y = fma(z, broadcast(-0.5f), y);
  F32 result = fma(e, broadcast(0.693359375f), f + y);
  const F32 infinity = broadcast(__builtin_inff());
  result = x == infinity ? infinity : result;
  result = x == 0.0f ? -infinity : result;
  return x >= 0.0f ? result : broadcast(__builtin_nanf(""));
}

/// log(1 + z) for 0 <= z <= 1: corrects the rounding error of 1 + z.
POLYPHASE_INLINE F32 log1p_unit(F32 z) {
  const F32 u = 1.0f + z;
  return log(u) + (z - (u - 1.0f)) / u;
}

typedef float HalfF32 __attribute__((vector_size(kVectorBytes / 2)));
typedef std::int32_t HalfI32 __attribute__((vector_size(kVectorBytes / 2)));

/// x = n pi/2 + r with |r| <= pi/4.
struct SinParts {
  F32 r;
  I32 n;
};
/// The largest |x| for split_sin_double: n times the first part of pi/2 (25 bits; from musl's __rem_pio2f) is exact.
inline constexpr float kSinLimit = 0x1.921fb4p28f;

POLYPHASE_INLINE void reduce_half(HalfF32 x, HalfF32& r, HalfI32& n) {
  constexpr double kRoundDouble = 0x1.8p52;
  const F64 wide = __builtin_convertvector(x, F64);
  const F64 turns = (wide * 6.36619772367581382433e-01 + kRoundDouble) - kRoundDouble;
  const F64 rest = (wide - turns * 1.57079631090164184570e+00) - turns * 1.58932547735281966916e-08;
  r = __builtin_convertvector(rest, HalfF32);
  n = __builtin_convertvector(turns, HalfI32);
}
POLYPHASE_INLINE SinParts split_sin_double(F32 x) {
  HalfF32 half[2], r[2];
  HalfI32 n[2];
  std::memcpy(half, &x, sizeof x);
  reduce_half(half[0], r[0], n[0]);
  reduce_half(half[1], r[1], n[1]);
  SinParts parts;
  std::memcpy(&parts.r, r, sizeof r);
  std::memcpy(&parts.n, n, sizeof n);
  return parts;
}
#if defined(__AVX2__) || defined(__aarch64__)
/// With a fused multiply-add three floats suffice for pi/2: x - n*first is exact, each further step is rounded once.
inline constexpr float kSinFastLimit = 0x1p16f;
POLYPHASE_INLINE SinParts split_sin(F32 x) {
  const F32 rounded = fma(x, broadcast(6.36619772e-1f), broadcast(kRound));
  const F32 n = rounded - kRound;
  F32 r = fma(n, broadcast(-0x1.921fb6p0f), x);
  r = fma(n, broadcast(0x1.777a5cp-25f), r);
  r = fma(n, broadcast(0x1.ee59dap-50f), r);
  return {r, as<I32>(rounded)};  // the upper bits of kRound do not matter: only n mod 4 is used
}
#else
inline constexpr float kSinFastLimit = kSinLimit;
POLYPHASE_INLINE SinParts split_sin(F32 x) { return split_sin_double(x); }
#endif
/// sin of n quarter turns plus r.
POLYPHASE_INLINE F32 sin_of_parts(F32 r, I32 n) {
  const F32 z = r * r;
  F32 s = broadcast(-1.9515295891e-4f);
  s = fma(s, z, broadcast(8.3321608736e-3f));
  s = fma(s, z, broadcast(-1.6666654611e-1f));
  s = fma(s * z, r, r);
  F32 c = broadcast(2.443315711809948e-5f);
  c = fma(c, z, broadcast(-1.388731625493765e-3f));
  c = fma(c, z, broadcast(4.166664568298827e-2f));
  c = fma(c * z, z, fma(z, broadcast(-0.5f), broadcast(1.0f)));
  const F32 magnitude = (n & 1) != 0 ? c : s;
  return as<F32>(as<I32>(magnitude) ^ ((n & 2) << 30));
}
/// sin(x + quarters pi/2) for |x| <= kSinFastLimit.
POLYPHASE_INLINE F32 sin_fast(F32 x, int quarters) {
  const SinParts parts = split_sin(x);
  const F32 result = sin_of_parts(parts.r, parts.n + quarters);
  return quarters == 0 ? (x == 0.0f ? x : result) : result;  // sin(-0) is -0
}
// Vectors with a lane beyond kSinFastLimit, infinite or NaN: rare. A lane's result does not depend on the other lanes.
[[gnu::noinline]] inline F32 sin_wide(F32 x, int quarters) {
  const SinParts parts = split_sin_double(x);
  F32 result = abs(x) <= kSinFastLimit ? sin_fast(x, quarters) : sin_of_parts(parts.r, parts.n + quarters);
  for (int i = 0; i < kLanes<float>; ++i) {
    if (__builtin_fabsf(x[i]) <= kSinLimit) continue;
    const double wide = static_cast<double>(x[i]);
    result[i] = static_cast<float>(quarters == 0 ? __builtin_sin(wide) : __builtin_cos(wide));
  }
  return result;
}
POLYPHASE_INLINE F32 sin(F32 x) {
  if (any_beyond(abs(x), kSinFastLimit)) [[unlikely]]
    return sin_wide(x, 0);
  return sin_fast(x, 0);
}
POLYPHASE_INLINE F32 cos(F32 x) {
  if (any_beyond(abs(x), kSinFastLimit)) [[unlikely]]
    return sin_wide(x, 1);
  return sin_fast(x, 1);
}

/// Both branches are computed: an odd polynomial near 0, 1 - 2/(exp(2|x|) + 1) elsewhere.
POLYPHASE_INLINE F32 tanh(F32 x) {
  const F32 z = x * x;
  F32 p = broadcast(-5.70498872745e-3f);
  p = fma(p, z, broadcast(2.06390887954e-2f));
  p = fma(p, z, broadcast(-5.37397155531e-2f));
  p = fma(p, z, broadcast(1.33314422036e-1f));
  p = fma(p, z, broadcast(-3.33332819422e-1f));
  const F32 small = fma(p * z, x, x);
  const F32 magnitude = abs(x);
  const F32 large = 1.0f - 2.0f / (exp(magnitude + magnitude) + 1.0f);
  return magnitude < 0.625f ? small : x < 0.0f ? -large : large;
}

/// 1/(1 + exp(-x)), from exp(-|x|) so that nothing overflows and small results keep their digits.
POLYPHASE_INLINE F32 sigmoid(F32 x) {
  const F32 z = exp(-abs(x));
  return (x < 0.0f ? z : broadcast(1.0f)) / (1.0f + z);
}

/// N. Juffa, "fast erff with maximum error below 1 ulp" (NVIDIA developer forums, 2018); a little more without fused
/// multiply-add.
POLYPHASE_INLINE F32 erf(F32 x) {
  const F32 t = abs(x);
  const F32 s = x * x;
  F32 r = fma(broadcast(-1.72853470e-5f), t, broadcast(3.83197126e-4f));
  const F32 u = fma(broadcast(-3.88396438e-3f), t, broadcast(2.42546219e-2f));
  r = fma(r, s, u);
  r = fma(r, t, broadcast(-1.06777877e-1f));
  r = fma(r, t, broadcast(-6.34846687e-1f));
  r = fma(r, t, broadcast(-1.28717512e-1f));
  r = fma(r, t, -t);
  const F32 large = t > 4.0f ? broadcast(1.0f) : 1.0f - exp(r);
  F32 p = broadcast(-5.96761703e-4f);
  p = fma(p, s, broadcast(4.99119423e-3f));
  p = fma(p, s, broadcast(-2.67681349e-2f));
  p = fma(p, s, broadcast(1.12819925e-1f));
  p = fma(p, s, broadcast(-3.76125336e-1f));
  p = fma(p, s, broadcast(1.28379166e-1f));
  const F32 small = fma(p, x, x);
  return t > 0.927734375f ? (x < 0.0f ? -large : large) : small;
}

/// x^p, lane by lane: common exponents (2, 1/2, ...) have operations of their own.
POLYPHASE_INLINE F32 pow(F32 x, F32 p) {
  for (int i = 0; i < kLanes<float>; ++i) x[i] = __builtin_powf(x[i], p[i]);
  return x;
}

// ---- f64, by the C library -------------------------------------------------------------------------------------------
template <double (*function)(double)>
POLYPHASE_INLINE F64 each(F64 x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = function(x[i]);
  return x;
}
inline double libm_exp(double x) { return __builtin_exp(x); }
inline double libm_expm1(double x) { return __builtin_expm1(x); }
inline double libm_log(double x) { return __builtin_log(x); }
inline double libm_log1p(double x) { return __builtin_log1p(x); }
inline double libm_sin(double x) { return __builtin_sin(x); }
inline double libm_cos(double x) { return __builtin_cos(x); }
inline double libm_tanh(double x) { return __builtin_tanh(x); }
inline double libm_erf(double x) { return __builtin_erf(x); }

POLYPHASE_INLINE F64 exp(F64 x) { return each<libm_exp>(x); }
POLYPHASE_INLINE F64 expm1_negative(F64 x) { return each<libm_expm1>(x); }
POLYPHASE_INLINE F64 log(F64 x) { return each<libm_log>(x); }
POLYPHASE_INLINE F64 log1p_unit(F64 x) { return each<libm_log1p>(x); }
POLYPHASE_INLINE F64 sin(F64 x) { return each<libm_sin>(x); }
POLYPHASE_INLINE F64 cos(F64 x) { return each<libm_cos>(x); }
POLYPHASE_INLINE F64 tanh(F64 x) { return each<libm_tanh>(x); }
POLYPHASE_INLINE F64 erf(F64 x) { return each<libm_erf>(x); }
POLYPHASE_INLINE F64 sigmoid(F64 x) {
  const F64 z = exp(-abs(x));
  return (x < 0.0 ? z : broadcast(1.0)) / (1.0 + z);
}
POLYPHASE_INLINE F64 pow(F64 x, F64 p) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = __builtin_pow(x[i], p[i]);
  return x;
}

}  // namespace polyphase::cpu::POLYPHASE_ISA
