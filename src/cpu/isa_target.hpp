#pragma once
// Vectors of the instruction set for which a kernel source is compiled. Include it only in the `isa_sources` of
// cpu/meson.build.
//
// DANGER: such a source is compiled several times with different flags into one binary. An inline function or template outside
// the namespace of its instruction set would be emitted several times under ONE name, the linker would keep any of them, and an
// old CPU would execute an AVX-512 instruction in, for example, std::min. Therefore an ISA source
//   - keeps all its code inside namespace polyphase::cpu::POLYPHASE_ISA (baseline, avx2 or avx512),
//   - uses builtins, compiler vector types, memcpy and <immintrin.h>; no function of std, nothing of Eigen, no exceptions,
//   - exports explicit specialisations of accessors only (cpu/isa.hpp).
// tools/check_isa_symbols.sh reads the objects and fails if a rule was broken.
//
// Multiply-adds are fused only where fma() is called (-ffp-contract=off), so that results are defined per instruction set.

#include <cstdint>
#include <cstring>

#include "cpu/isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef POLYPHASE_ISA
#error "cpu/isa_target.hpp belongs in the isa_sources of cpu/meson.build"
#endif

namespace polyphase::cpu::POLYPHASE_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

/// Lanes of a vector of T.
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<std::int32_t> {
  typedef std::int32_t Type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<std::uint32_t> {
  typedef std::uint32_t Type __attribute__((vector_size(kVectorBytes)));
};
/// A full register of T: `Vector<float>` has 4, 8 or 16 lanes. Arithmetic and comparison use the compiler's vector extensions.
template <class T>
using Vector = typename VectorOf<T>::Type;

#define POLYPHASE_INLINE [[gnu::always_inline]] inline

/// Unaligned load and store.
template <class T>
POLYPHASE_INLINE Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
POLYPHASE_INLINE void store(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof v);
}

/// All lanes equal to `value`.
template <class T>
POLYPHASE_INLINE Vector<T> broadcast(T value) {
  return value - Vector<T>{};
}

/// a*b + c, rounded once if the instruction set has such an instruction (all but baseline x86-64).
POLYPHASE_INLINE Vector<float> fma(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}
POLYPHASE_INLINE Vector<double> fma(Vector<double> a, Vector<double> b, Vector<double> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f64(c, a, b);
#else
  return a * b + c;
#endif
}

}  // namespace polyphase::cpu::POLYPHASE_ISA
