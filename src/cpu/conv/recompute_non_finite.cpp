// Plain loops in double, as in cpu/conv/reference.cpp: they run only if a number is infinite or NaN. A sum stops as soon as it
// is NaN, so that a network whose weights are all NaN is not slow here.

#include "cpu/conv/recompute_non_finite.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "cpu/conv/conv_element.hpp"
#include "cpu/conv/conv_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

template <class E>
double value(E element) {
  return static_cast<double>(static_cast<Compute<E>>(element));
}

template <class E>
E rounded(double sum) {
  return static_cast<E>(static_cast<Compute<E>>(sum));
}

/// The output at virtual position q of a phase, from the existing elements of `in` (R, in_length) only; `w` is its row of
/// weights.
template <class E>
double output(const GatherShape& s, const std::vector<Tap>& taps, std::int64_t q, const E* in, const E* w, double bias) {
  double sum = bias;
  for (std::int64_t c = 0; c < s.R && !std::isnan(sum); ++c)
    for (const Tap& tap : taps) {
      const std::int64_t at = s.in_stride * (q + tap.shift) + tap.residue;
      if (at >= 0 && at < s.in_length) sum += value(w[c * s.w_channel + tap.k]) * value(in[c * s.in_length + at]);
    }
  return sum;
}

/// The weights' gradient of one pair of channels.
template <class E>
class WeightSum {
 public:
  WeightSum(const ConvProblem& problem, const E* x, const E* y) : p_(problem), x_(x), y_(y) {
    for (std::int64_t n = 0; n < p_.N; ++n)
      for (std::int64_t i = 0; i < p_.L_in; ++i)
        if (!std::isfinite(value(x_[n * p_.C_in * p_.L_in + i]))) spots_.emplace_back(n, i);
  }

  /// Whether no element of this row of x can have met padding with a NaN product.
  [[nodiscard]] bool is_finite() const { return spots_.empty(); }

  /// For output channel m of the group at tap k. The products that are most likely NaN come first.
  [[nodiscard]] double operator()(std::int64_t m, std::int64_t k) const {
    double sum = 0;
    for (const auto& [n, i] : spots_) {
      sum += product(n, i, m, k);
      if (std::isnan(sum)) return sum;
    }
    sum = 0;
    for (std::int64_t n = 0; n < p_.N && !std::isnan(sum); ++n)
      for (std::int64_t i = 0; i < p_.L_in; ++i) sum += product(n, i, m, k);
    return sum;
  }

 private:
  [[nodiscard]] double product(std::int64_t n, std::int64_t i, std::int64_t m, std::int64_t k) const {
    const std::int64_t t = p_.S * i + k * p_.D - p_.P_l;
    if (t < 0 || t >= p_.L_out) return 0;
    return value(x_[n * p_.C_in * p_.L_in + i]) * value(y_[(n * p_.C_out + m) * p_.L_out + t]);
  }

  const ConvProblem& p_;
  const E* x_;                                                // of the input channel, in the first sample
  const E* y_;                                                // of the group's first output channel
  std::vector<std::pair<std::int64_t, std::int64_t>> spots_;  // (n, i) where x is not finite
};

template <class E>
void sum_ends(const GatherShape& s, const E* in, const E* w, const E* bias, E* out) {
  parallel_for(s.N * s.G * s.M, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t sample_group = row / s.M, channel = row % (s.G * s.M);
      const E* from = in + sample_group * s.R * s.in_length;
      const E* weights = w + channel / s.M * s.w_group + channel % s.M * s.w_row;
      for (std::size_t r = 0; r < s.phases.size(); ++r) {
        const Interior inner = interior(s, r);
        for (std::int64_t q = 0; q < s.q_count; ++q) {
          if (q == inner.begin) q = inner.end;
          const std::int64_t t = s.out_stride * q + static_cast<std::int64_t>(r);
          if (t >= s.out_length) break;
          E& result = out[row * s.out_length + t];
          if (std::isnan(value(result)))
            result = rounded<E>(output(s, s.phases[r], q, from, weights, bias != nullptr ? value(bias[channel]) : 0.0));
        }
      }
    }
  });
}

template <class E>
void sum_weights(const ConvProblem& p, const E* x, const E* y, E* w) {
  const std::int64_t channels = p.channels_out_per_group();
  parallel_for(p.C_in, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t ci = begin; ci < end; ++ci) {
      const std::int64_t group = ci / p.channels_in_per_group();
      const WeightSum<E> sum(p, x + ci * p.L_in, y + group * channels * p.L_out);
      if (sum.is_finite()) continue;
      for (std::int64_t j = 0; j < channels * p.K; ++j) {
        E& weight = w[ci * channels * p.K + j];
        if (std::isnan(value(weight))) weight = rounded<E>(sum(j / p.K, j % p.K));
      }
    }
  });
}

}  // namespace

void recompute_at_ends(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                       void* out) {
  with_element(problem, [&](auto element) {
    using E = decltype(element);
    sum_ends(gather_shape(problem, direction), static_cast<const E*>(in), static_cast<const E*>(w), static_cast<const E*>(bias),
             static_cast<E*>(out));
  });
}

void recompute_weights(const ConvProblem& problem, const void* x, const void* y, void* w) {
  with_element(problem, [&](auto element) {
    using E = decltype(element);
    sum_weights(problem, static_cast<const E*>(x), static_cast<const E*>(y), static_cast<E*>(w));
  });
}

}  // namespace polyphase::cpu
