#pragma once
// The three sums of a convolution in the simplest form, to measure the accuracy of plain arithmetic. Shares nothing with the
// library's kernels, not even with the reference ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv/problem.hpp"

namespace polyphase::golden {

/// The three sums of conv/problem.hpp, accumulated in T in the order of channels, taps and positions.
template <class T>
class PlainConv {
 public:
  explicit PlainConv(const ConvProblem& problem) : p_(problem) {}

  /// y (N, C_out, L_out) = bias (C_out, or empty) + x * w.
  [[nodiscard]] std::vector<T> forward(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& bias) const {
    std::vector<T> y = filled(p_.N, p_.C_out, p_.L_out, bias);
    for_each_row([&](const Row& r) {
      const T weight = w[r.w];
      for (std::int64_t i = r.begin; i < r.end; ++i) y[r.y + at(p_.S * i + r.shift)] += x[r.x + at(i)] * weight;
    });
    return y;
  }

  /// x (N, C_in, L_in) = bias (C_in, or empty) + the sum that is ConvTranspose1d's input gradient and Conv1d's forward.
  [[nodiscard]] std::vector<T> dgrad(const std::vector<T>& y, const std::vector<T>& w, const std::vector<T>& bias) const {
    std::vector<T> x = filled(p_.N, p_.C_in, p_.L_in, bias);
    for_each_row([&](const Row& r) {
      const T weight = w[r.w];
      for (std::int64_t i = r.begin; i < r.end; ++i) x[r.x + at(i)] += y[r.y + at(p_.S * i + r.shift)] * weight;
    });
    return x;
  }

  /// w (C_in, C_out/G, K).
  [[nodiscard]] std::vector<T> wgrad(const std::vector<T>& x, const std::vector<T>& y) const {
    std::vector<T> w(at(p_.C_in * p_.channels_out_per_group() * p_.K));
    for_each_row([&](const Row& r) {
      T sum = w[r.w];
      for (std::int64_t i = r.begin; i < r.end; ++i) sum += x[r.x + at(i)] * y[r.y + at(p_.S * i + r.shift)];
      w[r.w] = sum;
    });
    return w;
  }

  /// Sums of `values` (N, channels, length) over all dimensions except the channel: the gradient of a bias.
  [[nodiscard]] static std::vector<T> bias_grad(const std::vector<T>& values, std::int64_t N, std::int64_t channels,
                                                std::int64_t length) {
    std::vector<T> sums(at(channels));
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t t = 0; t < length; ++t) sums[at(c)] += values[at((n * channels + c) * length + t)];
      }
    }
    return sums;
  }

 private:
  // One tap of one pair of channels of one sample: y[S*i + shift] meets x[i] for begin <= i < end.
  struct Row {
    std::size_t x, w, y;  // where the two rows start, and the weight
    std::int64_t begin, end, shift;
  };
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  static std::vector<T> filled(std::int64_t N, std::int64_t channels, std::int64_t length, const std::vector<T>& bias) {
    std::vector<T> values(at(N * channels * length));
    for (std::int64_t row = 0; row < N * channels && !bias.empty(); ++row) {
      std::fill_n(values.begin() + row * length, length, bias[at(row % channels)]);
    }
    return values;
  }

  template <class Function>
  void for_each_row(const Function& function) const {
    const std::int64_t width = p_.channels_out_per_group();
    for (std::int64_t n = 0; n < p_.N; ++n) {
      for (std::int64_t ci = 0; ci < p_.C_in; ++ci) {
        const std::int64_t first_out = ci / p_.channels_in_per_group() * width;
        for (std::int64_t co = 0; co < width; ++co) {
          for (std::int64_t k = 0; k < p_.K; ++k) {
            Row row{at((n * p_.C_in + ci) * p_.L_in),
                    at((ci * width + co) * p_.K + k),
                    at((n * p_.C_out + first_out + co) * p_.L_out),
                    0,
                    p_.L_in,
                    k * p_.D - p_.P_l};
            while (row.begin < row.end && p_.S * row.begin + row.shift < 0) ++row.begin;
            while (row.end > row.begin && p_.S * (row.end - 1) + row.shift >= p_.L_out) --row.end;
            function(row);
          }
        }
      }
    }
  }

  ConvProblem p_;
};

}  // namespace polyphase::golden
