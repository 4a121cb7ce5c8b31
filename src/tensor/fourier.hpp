#pragma once
// What the Fourier transforms of every device share: their roots, how a length is cut into passes, and Bluestein's tables.
// Internal to the library.

#include <complex>
#include <cstdint>
#include <vector>

namespace polyphase {

/// exp(-2 pi i k/n), 0 <= k < n, each part the nearest f64 or its neighbour wherever it is on the circle.
[[nodiscard]] std::complex<double> unit_root(std::int64_t k, std::int64_t n);

/// The radices of the passes of a complex transform: fours first, then what primes are left, rising.
[[nodiscard]] std::vector<std::int64_t> fft_radices(std::int64_t points);

/// A prime factor p takes p operations a point and an error that grows with its root. Past this one a transform of m points is
/// cheaper, and at least as accurate, as a convolution (L. Bluestein, "A linear filtering approach to the computation of
/// discrete Fourier transform", 1970):
///   X_k = c_k * sum over j of (x_j c_j) conj(c_{k-j}),   c_k = exp(-pi i k^2/m).
/// f32 rows go that way in f64.
inline constexpr std::int64_t kLargestRadix = 281;

/// How many points the transforms of that convolution have, 2m - 1 or a few more; 0 where no prime factor of m is that large.
[[nodiscard]] std::int64_t convolution_points(std::int64_t m);

struct ConvolutionTables {
  std::vector<std::complex<double>> chirp;     ///< (m): c_k from k^2 mod 2m, so that it is right for any k
  std::vector<std::complex<double>> spectrum;  ///< (points): the transform of conj(c), laid around 0, over points
};
[[nodiscard]] ConvolutionTables convolution_tables(std::int64_t m);

}  // namespace polyphase
