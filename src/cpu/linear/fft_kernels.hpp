#pragma once
// Real Fourier transforms of several rows in one call, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

/// One pass of a complex transform: `radix` divides the remaining length.
template <class T>
struct FftPass {
  std::int64_t radix;
  std::int64_t length;  ///< points of the transforms that this pass splits, radix included
  const T* twiddles;    ///< (length/radix, radix - 1, 2): exp(-2 pi i p k / length), k = 1..radix-1
  const T* roots;       ///< (radix, 2): exp(-2 pi i j / radix); only if the radix is neither 2 nor 4
};

/// Everything that can be precomputed for a length.
template <class T>
struct FftTables {
  std::int64_t n;  ///< real points, even
  const FftPass<T>* passes;
  std::int64_t pass_count;
  std::int64_t points;  ///< of the passes: m = n/2, or the points of the equivalent convolution (tensor/fourier.hpp)
  const T* chirp;       ///< (m, 2) of a convolution, else null
  const T* spectrum;    ///< (points, 2) of a convolution, else null
  const T* split;       ///< (n/2 + 1, 2): exp(-2 pi i k / n)
};

/// Transforms rows of E, computed in T.
template <class T, class E>
struct FftFunctions {
  std::int64_t lanes;  ///< rows that are transformed together
  /// Number of T's of scratch that either function needs.
  std::int64_t (*scratch)(const FftTables<T>& tables);
  /// in (rows, n) to out (rows, n/2 + 1, 2); rows <= lanes. Scratch is aligned to 64 bytes.
  void (*forward)(const FftTables<T>& tables, const E* in, E* out, std::int64_t rows, T* scratch);
  /// The adjoint: in (rows, n/2 + 1, 2) to out (rows, n).
  void (*adjoint)(const FftTables<T>& tables, const E* in, E* out, std::int64_t rows, T* scratch);
};

struct FftKernels {
  FftFunctions<float, float> f32;
  FftFunctions<double, float> wide;
  FftFunctions<double, double> f64;
};

template <Isa isa>
const FftKernels& fft_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
inline const FftKernels& fft_kernels() {
  return dispatch_isa([](auto tag) -> const FftKernels& { return fft_kernels<tag.value>(); });
}
#endif

}  // namespace polyphase::cpu
