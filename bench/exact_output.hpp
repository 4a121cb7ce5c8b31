#pragma once
// One element of a convolution's result in float64, by the formula of conv/problem.hpp, on the host or in a kernel.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "conv/problem.hpp"

#ifdef __CUDACC__
#define POLYPHASE_BENCH_BOTH __host__ __device__
#else
#define POLYPHASE_BENCH_BOTH
#endif

namespace polyphase::bench {

/// The most terms that a result's element has.
inline double terms_of(const ConvProblem& p, ConvDirection direction) {
  return static_cast<double>(direction == ConvDirection::wgrad   ? p.N * p.L_in
                             : direction == ConvDirection::dgrad ? p.channels_out_per_group() * p.K
                                                                 : p.channels_in_per_group() * p.K);
}

/// A sum, and the sum of its terms' magnitudes.
struct ExactSum {
  double value, magnitude;
  POLYPHASE_BENCH_BOTH void add(double term) {
    value += term;
    magnitude += term < 0 ? -term : term;
  }
};

/// An element of a result: by the formula, the sum of its terms' magnitudes, and as computed.
struct SampledOutput {
  double exact, magnitude, result;
};

/// The largest |result - exact| over an output's typical size; infinity for NaN, or if all are zero. That size is the root mean
/// square of all outputs, or what `terms` independent terms of this one's magnitude add up to: sums of few terms are often far
/// from the root mean square, and so is their rounding.
inline double largest_error(const std::vector<SampledOutput>& outputs, double terms) {
  double squares = 0, worst = 0;
  for (const SampledOutput& one : outputs) squares += one.exact * one.exact;
  if (squares == 0) return std::numeric_limits<double>::infinity();
  const double typical = std::sqrt(squares / static_cast<double>(outputs.size())), root = std::sqrt(terms);
  for (const SampledOutput& one : outputs) {
    const double error = std::abs(one.result - one.exact) / std::max(typical, one.magnitude / root);
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

/// The arrays of a problem. With `nhwc` the channels are innermost: x (N, L_in, C_in), w (C_in, K, C_out/G), y (N, L_out,
/// C_out). Results are always numbered as conv/problem.hpp lays them out.
template <class T>
struct ExactOutput {
  ConvProblem p;
  ConvDirection direction;
  bool nhwc;
  const T *x, *w, *y;

  POLYPHASE_BENCH_BOTH double x_at(std::int64_t n, std::int64_t ci, std::int64_t i) const {
    return static_cast<double>(x[nhwc ? (n * p.L_in + i) * p.C_in + ci : (n * p.C_in + ci) * p.L_in + i]);
  }
  POLYPHASE_BENCH_BOTH double y_at(std::int64_t n, std::int64_t co, std::int64_t t) const {
    return static_cast<double>(y[nhwc ? (n * p.L_out + t) * p.C_out + co : (n * p.C_out + co) * p.L_out + t]);
  }
  POLYPHASE_BENCH_BOTH double w_at(std::int64_t ci, std::int64_t m, std::int64_t k) const {
    const std::int64_t M = p.C_out / p.G;
    return static_cast<double>(w[nhwc ? (ci * p.K + k) * M + m : (ci * M + m) * p.K + k]);
  }

  /// The arrays' value of result number `index`.
  POLYPHASE_BENCH_BOTH double result(std::int64_t index) const {
    if (direction == ConvDirection::forward) return y_at(index / p.L_out / p.C_out, index / p.L_out % p.C_out, index % p.L_out);
    if (direction == ConvDirection::dgrad) return x_at(index / p.L_in / p.C_in, index / p.L_in % p.C_in, index % p.L_in);
    const std::int64_t M = p.C_out / p.G;
    return w_at(index / p.K / M, index / p.K % M, index % p.K);
  }

  /// The terms first, first + step, ... of result number `index`.
  POLYPHASE_BENCH_BOTH ExactSum sum(std::int64_t index, std::int64_t first = 0, std::int64_t step = 1) const {
    return direction == ConvDirection::forward ? forward(index, first, step)
           : direction == ConvDirection::dgrad ? dgrad(index, first, step)
                                               : wgrad(index, first, step);
  }

 private:
  POLYPHASE_BENCH_BOTH ExactSum forward(std::int64_t index, std::int64_t first, std::int64_t step) const {
    const std::int64_t t = index % p.L_out, co = index / p.L_out % p.C_out, n = index / p.L_out / p.C_out;
    const std::int64_t R = p.C_in / p.G, M = p.C_out / p.G;
    ExactSum sum{0, 0};
    for (std::int64_t j = first; j < R * p.K; j += step) {
      const std::int64_t k = j % p.K, ci = co / M * R + j / p.K, at = t + p.P_l - k * p.D;
      if (at >= 0 && at % p.S == 0 && at / p.S < p.L_in) sum.add(x_at(n, ci, at / p.S) * w_at(ci, co % M, k));
    }
    return sum;
  }
  POLYPHASE_BENCH_BOTH ExactSum dgrad(std::int64_t index, std::int64_t first, std::int64_t step) const {
    const std::int64_t i = index % p.L_in, ci = index / p.L_in % p.C_in, n = index / p.L_in / p.C_in;
    const std::int64_t R = p.C_in / p.G, M = p.C_out / p.G;
    ExactSum sum{0, 0};
    for (std::int64_t j = first; j < M * p.K; j += step) {
      const std::int64_t k = j % p.K, m = j / p.K, t = p.S * i + k * p.D - p.P_l;
      if (t >= 0 && t < p.L_out) sum.add(y_at(n, ci / R * M + m, t) * w_at(ci, m, k));
    }
    return sum;
  }
  POLYPHASE_BENCH_BOTH ExactSum wgrad(std::int64_t index, std::int64_t first, std::int64_t step) const {
    const std::int64_t R = p.C_in / p.G, M = p.C_out / p.G;
    const std::int64_t k = index % p.K, m = index / p.K % M, ci = index / p.K / M;
    ExactSum sum{0, 0};
    for (std::int64_t j = first; j < p.N * p.L_in; j += step) {
      const std::int64_t n = j / p.L_in, i = j - n * p.L_in, t = p.S * i + k * p.D - p.P_l;
      if (t >= 0 && t < p.L_out) sum.add(x_at(n, ci, i) * y_at(n, ci / R * M + m, t));
    }
    return sum;
  }
};

}  // namespace polyphase::bench
