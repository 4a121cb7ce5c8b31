#pragma once
// The inner loops of an activation at twice the sampling rate, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

inline constexpr int kAntialiasLanes = 16;  ///< of any instruction set's vectors, at most
inline constexpr int kAntialiasReach = 6;   ///< elements past `count` that are read of every array

/// Rows at the lower rate, and at the higher one as two rows: its even and its odd positions. All go on to the end of the last
/// whole vector, where their arrays must be readable and writable. What an element becomes does not depend on its place.
template <class T>
struct AntialiasKernels {
  /// even[j] = sum over q < 6 of taps[11 - 2q]*x[j + q], odd[j] = that of taps[10 - 2q]*x[j + 1 + q].
  void (*up)(const T* x, const T* taps, T* even, T* odd, std::int64_t count);
  /// The same, each value v then v + sin(alpha*v)^2/beta.
  void (*up_snake)(const T* x, const T* taps, T alpha, T beta, T* even, T* odd, std::int64_t count);
  /// out[j] = sum over q < 6 of taps[2q]*odd[j + q] + taps[2q + 1]*even[j + 1 + q].
  void (*down)(const T* even, const T* odd, const T* taps, T* out, std::int64_t count);
  /// With v of up(): even and odd, gradients of v + sin(alpha*v)^2/beta, become those of v. Adds to sums[0] what they were
  /// times v*sin(2*alpha*v), to sums[1] times sin(alpha*v)^2, both of first <= j < last.
  void (*snake_gradient)(const T* x, const T* taps, T alpha, T beta, T* even, T* odd, std::int64_t count, std::int64_t first,
                         std::int64_t last, double* sums);
};

template <Isa isa, class T>
const AntialiasKernels<T>& antialias_kernels();

#ifndef POLYPHASE_ISA  // the choice is for callers, not for kernel sources
template <class T>
const AntialiasKernels<T>& antialias_kernels() {
  return dispatch_isa([](auto tag) -> const AntialiasKernels<T>& { return antialias_kernels<tag.value, T>(); });
}
#endif

}  // namespace polyphase::cpu
