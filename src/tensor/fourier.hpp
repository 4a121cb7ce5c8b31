#pragma once
// The shared part of the Fourier transforms of all devices: roots, how a length is split into passes, and Bluestein's tables.
// Internal to the library.

#include <complex>
#include <cstdint>
#include <vector>

namespace polyphase {

/// exp(-2 pi i k/n), 0 <= k < n; each part is the nearest f64 or a neighbour of it, for any k.
[[nodiscard]] std::complex<double> unit_root(std::int64_t k, std::int64_t n);

/// The radices of the passes of a complex transform: fours first, then the remaining primes, ascending.
[[nodiscard]] std::vector<std::int64_t> fft_radices(std::int64_t points);

/// A prime factor p takes p operations per point, and its error grows with the square root of p. For larger primes a transform
/// of m points is cheaper, and at least as accurate, as a convolution (L. Bluestein, "A linear filtering approach to the
/// computation of discrete Fourier transform", 1970):
///   X_k = c_k * sum over j of (x_j c_j) conj(c_{k-j}),   c_k = exp(-pi i k^2/m).
/// f32 rows are then computed in f64.
inline constexpr std::int64_t kLargestRadix = 281;

/// The number of points of that convolution's transforms, 2m - 1 or a few more; 0 if no prime factor of m is that large.
[[nodiscard]] std::int64_t convolution_points(std::int64_t m);

struct ConvolutionTables {
  std::vector<std::complex<double>> chirp;     ///< (m): c_k from k^2 mod 2m, so that it is accurate for any k
  std::vector<std::complex<double>> spectrum;  ///< (points): the transform of conj(c), placed around 0, divided by points
};
[[nodiscard]] ConvolutionTables convolution_tables(std::int64_t m);

}  // namespace polyphase
