#pragma once
// The inner loops of an activation at twice the sampling rate, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

inline constexpr int kAntialiasLanes = 16;  ///< upper limit for the lanes of any instruction set
inline constexpr int kAntialiasReach = 6;   ///< elements past `count` that are read from every array

/// Rows at the lower rate, and at the higher rate as two rows of even and odd positions. All functions continue to the end of
/// the last whole vector, where the arrays must be readable and writable. The result for an element does not depend on its
/// place.
template <class T>
struct AntialiasKernels {
  /// even[j] = sum over q < 6 of taps[11 - 2q]*x[j + q], odd[j] = sum over q < 6 of taps[10 - 2q]*x[j + 1 + q].
  void (*up)(const T* x, const T* taps, T* even, T* odd, std::int64_t count);
  /// The same; each value v then becomes v + sin(alpha*v)^2/beta.
  void (*up_snake)(const T* x, const T* taps, T alpha, T beta, T* even, T* odd, std::int64_t count);
  /// out[j] = sum over q < 6 of taps[2q]*odd[j + q] + taps[2q + 1]*even[j + 1 + q].
  void (*down)(const T* even, const T* odd, const T* taps, T* out, std::int64_t count);
  /// With v from up(): turns even and odd, the gradients of v + sin(alpha*v)^2/beta, into those of v. For first <= j < last it
  /// adds their old values times v*sin(2*alpha*v) to sums[0] and times sin(alpha*v)^2 to sums[1].
  void (*snake_gradient)(const T* x, const T* taps, T alpha, T beta, T* even, T* odd, std::int64_t count, std::int64_t first,
                         std::int64_t last, double* sums);
};

template <Isa isa, class T>
const AntialiasKernels<T>& antialias_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
template <class T>
const AntialiasKernels<T>& antialias_kernels() {
  return dispatch_isa([](auto tag) -> const AntialiasKernels<T>& { return antialias_kernels<tag.value, T>(); });
}
#endif

}  // namespace polyphase::cpu
