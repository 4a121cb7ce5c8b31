#include "tensor/fourier.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace polyphase {
namespace {

using Complex = std::complex<double>;

// exp(-i pi a/(2b)), 2a <= b; in long double, because the error of an f64 angle exceeds half of the result's last digit.
Complex small_root(std::int64_t a, std::int64_t b) {
  const long double angle = std::numbers::pi_v<long double> / 2 * static_cast<long double>(a) / static_cast<long double>(b);
  return {static_cast<double>(std::cos(angle)), -static_cast<double>(std::sin(angle))};
}

// The transform of `count` numbers `stride` apart, by recursion; the prime factors of count are 2, 3 and 5.
void transform(const Complex* in, std::int64_t stride, Complex* out, std::int64_t count, const std::vector<Complex>& roots) {
  if (count == 1) {
    *out = *in;
    return;
  }
  const std::int64_t radix = count % 5 == 0 ? 5 : count % 3 == 0 ? 3 : 2, part = count / radix;
  std::vector<Complex> parts(static_cast<std::size_t>(count));
  for (std::int64_t s = 0; s < radix; ++s) transform(in + s * stride, stride * radix, parts.data() + s * part, part, roots);
  const std::int64_t step = static_cast<std::int64_t>(roots.size()) / count;
  for (std::int64_t k = 0; k < count; ++k) {
    Complex sum = parts[static_cast<std::size_t>(k % part)];
    for (std::int64_t s = 1; s < radix; ++s)
      sum += parts[static_cast<std::size_t>(s * part + k % part)] * roots[static_cast<std::size_t>(s * k % count * step)];
    out[k] = sum;
  }
}

}  // namespace

std::complex<double> unit_root(std::int64_t k, std::int64_t n) {
  if (2 * k > n) return std::conj(unit_root(n - k, n));
  std::int64_t quarters = 4 * k;  // of n: the angle is pi/2 * quarters/n
  const bool left = quarters > n;
  if (left) quarters = 2 * n - quarters;
  const bool steep = 2 * quarters > n;
  Complex root = small_root(steep ? n - quarters : quarters, n);
  if (steep) root = {-root.imag(), -root.real()};
  return {left ? -root.real() : root.real(), root.imag()};
}

std::vector<std::int64_t> fft_radices(std::int64_t points) {
  std::vector<std::int64_t> radices;
  for (; points % 4 == 0; points /= 4) radices.push_back(4);
  for (std::int64_t radix = 2; points > 1; ++radix) {
    if (radix * radix > points) radix = points;  // the rest is a prime
    for (; points % radix == 0; points /= radix) radices.push_back(radix);
  }
  return radices;
}

std::int64_t convolution_points(std::int64_t m) {
  const std::vector<std::int64_t> radices = fft_radices(m);
  if (radices.empty() || radices.back() <= kLargestRadix) return 0;
  std::int64_t least = 0;
  for (std::int64_t points : {1, 3, 5}) {
    while (points < 2 * m - 1) points *= 2;
    if (least == 0 || points < least) least = points;
  }
  return least;
}

ConvolutionTables convolution_tables(std::int64_t m) {
  const std::int64_t points = convolution_points(m);
  ConvolutionTables tables{std::vector<Complex>(static_cast<std::size_t>(m)),
                           std::vector<Complex>(static_cast<std::size_t>(points))};
  std::vector<Complex> around(static_cast<std::size_t>(points)), roots(static_cast<std::size_t>(points));
  for (std::int64_t k = 0, square = 0; k < m; ++k) {
    const Complex root = unit_root(square, 2 * m);
    tables.chirp[static_cast<std::size_t>(k)] = root;
    around[static_cast<std::size_t>(k)] = around[static_cast<std::size_t>((points - k) % points)] =
        std::conj(root) / static_cast<double>(points);
    square = (square + 2 * k + 1) % (2 * m);
  }
  for (std::int64_t k = 0; k < points; ++k) roots[static_cast<std::size_t>(k)] = unit_root(k, points);
  transform(around.data(), 1, tables.spectrum.data(), points, roots);
  return tables;
}

}  // namespace polyphase
