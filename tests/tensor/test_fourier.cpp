#include "tensor/fourier.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/fourier.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("roots are right to their last digit all around the circle") {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 12, 97, 1000, 9973, 19946}) {
    const Circle circle(n);
    double worst = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      const std::complex<double> root = unit_root(k, n);
      const auto at = static_cast<std::size_t>(k);
      worst = std::max({worst, static_cast<double>(std::abs(root.real() - circle.cosine[at])),
                        static_cast<double>(std::abs(root.imag() + circle.sine[at]))});
    }
    CAPTURE(n);
    CHECK(worst <= kRootRounding);
  }
  for (const std::int64_t n : {4, 8, 1000, 1 << 20}) {
    CHECK(unit_root(0, n) == std::complex<double>(1, 0));
    CHECK(unit_root(n / 4, n) == std::complex<double>(0, -1));
    CHECK(unit_root(n / 2, n) == std::complex<double>(-1, 0));
    CHECK(unit_root(n - n / 4, n) == std::complex<double>(0, 1));
  }
  const std::int64_t far = std::int64_t{1} << 40;
  CHECK(unit_root(3 * (far / 8), far).real() == unit_root(3, 8).real());
}

TEST_CASE("radices multiply to the length: fours, then primes that rise") {
  for (std::int64_t points = 1; points < 3000; ++points) {
    std::int64_t product = 1;
    for (const std::int64_t radix : fft_radices(points)) product *= radix;
    CHECK(product == points);
  }
  CHECK(fft_radices(1).empty());
  CHECK(fft_radices(480) == std::vector<std::int64_t>{4, 4, 2, 3, 5});
  CHECK(fft_radices(4 * 9973) == std::vector<std::int64_t>{4, 9973});
}

TEST_CASE("only lengths with a large prime factor are convolutions, of the next smooth length") {
  for (const std::int64_t m : {1, 2, 1024, 281, 281 * 277, 281 * 281, 15015}) CHECK(convolution_points(m) == 0);
  CHECK(convolution_points(283) == 640);
  CHECK(convolution_points(9973) == 20480);
  CHECK(convolution_points(2 * 9973) == 40960);
  CHECK(convolution_points(3 * 8191) == 49152);
}

TEST_CASE("the chirp of a convolution and its spectrum by their definitions") {
  const std::int64_t m = 509, points = convolution_points(m);
  const ConvolutionTables tables = convolution_tables(m);
  REQUIRE(tables.chirp.size() == 509);
  REQUIRE(tables.spectrum.size() == static_cast<std::size_t>(points));
  const Circle turns(2 * m), circle(points);
  double worst_chirp = 0, worst = 0;
  for (std::int64_t k = 0; k < m; ++k) {
    const auto turn = static_cast<std::size_t>(k * k % (2 * m));
    worst_chirp = std::max(
        {worst_chirp, static_cast<double>(std::abs(tables.chirp[static_cast<std::size_t>(k)].real() - turns.cosine[turn])),
         static_cast<double>(std::abs(tables.chirp[static_cast<std::size_t>(k)].imag() + turns.sine[turn]))});
  }
  CHECK(worst_chirp <= kRootRounding);
  for (std::int64_t f = 0; f < points; ++f) {
    long double re = 0, im = 0;  // the sequence is even: c_k is at k and at points - k
    for (std::int64_t k = 0; k < m; ++k) {
      const auto turn = static_cast<std::size_t>(k * k % (2 * m));
      const long double twice = (k == 0 ? 1 : 2) * circle.cosine[static_cast<std::size_t>(f * k % points)];
      re += twice * turns.cosine[turn];
      im += twice * turns.sine[turn];
    }
    const std::complex<double> got = tables.spectrum[static_cast<std::size_t>(f)] * static_cast<double>(points);
    worst = std::max({worst, static_cast<double>(std::abs(got.real() - re)), static_cast<double>(std::abs(got.imag() - im))});
  }
  CHECK(worst <= kDoubleRounding);
}
