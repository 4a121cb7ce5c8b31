#pragma once
// Fourier transforms by their definition in long double, and the errors of other transforms.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::testing {

/// Distance of the outputs that are compared: all of a short row, about two hundred of a long one.
inline std::int64_t fft_sample(std::int64_t outputs) { return outputs / 200 + 1; }

/// cos and sin of 2 pi k/n, k < n.
struct Circle {
  std::vector<long double> cosine, sine;
  explicit Circle(std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k) {
      const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(k) / static_cast<long double>(n);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
  }
};

/// The norm of the error of bins (R, n/2 + 1, 2) as the transform of x (R, n), over that transform's norm.
inline double fft_error(const Tensor& x, const Tensor& bins) {
  const std::int64_t R = x.size(0), n = x.size(1), outputs = n / 2 + 1;
  const auto from = x.cpu().to(DType::f64).to_vector<double>(), got = bins.cpu().to(DType::f64).to_vector<double>();
  const Circle circle(n);
  long double off = 0, all = 0;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t f = 0; f < outputs; f += fft_sample(outputs)) {
      long double re = 0, im = 0;
      for (std::int64_t t = 0, turn = 0; t < n; ++t, turn = (turn + f) % n) {
        const double value = from[static_cast<std::size_t>(r * n + t)];
        re += value * circle.cosine[static_cast<std::size_t>(turn)];
        im -= value * circle.sine[static_cast<std::size_t>(turn)];
      }
      const auto at = static_cast<std::size_t>(2 * (r * outputs + f));
      off += (got[at] - re) * (got[at] - re) + (got[at + 1] - im) * (got[at + 1] - im);
      all += re * re + im * im;
    }
  return static_cast<double>(std::sqrt(off / all));
}

/// The same for x (R, n) as the adjoint transform of bins (R, n/2 + 1, 2).
inline double fft_adjoint_error(const Tensor& bins, const Tensor& x) {
  const std::int64_t R = x.size(0), n = x.size(1), inputs = n / 2 + 1;
  const auto from = bins.cpu().to(DType::f64).to_vector<double>(), got = x.cpu().to(DType::f64).to_vector<double>();
  const Circle circle(n);
  long double off = 0, all = 0;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t t = 0; t < n; t += fft_sample(n)) {
      long double sum = 0;
      for (std::int64_t f = 0, turn = 0; f < inputs; ++f, turn = (turn + t) % n) {
        const auto at = static_cast<std::size_t>(2 * (r * inputs + f));
        sum += from[at] * circle.cosine[static_cast<std::size_t>(turn)] -
               from[at + 1] * circle.sine[static_cast<std::size_t>(turn)];
      }
      const long double difference = got[static_cast<std::size_t>(r * n + t)] - sum;
      off += difference * difference;
      all += sum * sum;
    }
  return static_cast<double>(std::sqrt(off / all));
}

/// Rows to transform, their adjoints' input, and the allowed error of either result.
struct FftCase {
  Tensor x, bins;
  double bound;
};
/// Every length of kReferenceFft, in f32 and f64.
inline std::vector<FftCase> reference_cases() {
  std::vector<FftCase> cases;
  for (const ReferenceFft& reference : kReferenceFft)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const std::int64_t n = reference.n, rows = n < 1000 ? 6 : 1;
      cases.push_back({random_f64({rows, n}).to(dtype), random_f64({rows, n / 2 + 1, 2}, 2).to(dtype),
                       kErrorOverReferenceFft * (dtype == DType::f32 ? reference.f32 : reference.f64)});
    }
  return cases;
}

}  // namespace polyphase::testing
