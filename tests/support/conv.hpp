#pragma once
// Convolution problems, their arrays, and the formula of conv/problem.hpp as three plain loops.

#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/conv/conv.hpp"
#include "cpu/isa.hpp"

namespace polyphase::testing {

/// The problem with L_out filled in.
inline ConvProblem sized(ConvProblem p) {
  p.L_out = conv_transpose1d_length(p.L_in, p.K, p.S, p.P_l, p.P_r, p.OP, p.D);
  return p;
}

inline std::int64_t x_size(const ConvProblem& p) { return p.N * p.C_in * p.L_in; }
inline std::int64_t y_size(const ConvProblem& p) { return p.N * p.C_out * p.L_out; }
inline std::int64_t w_size(const ConvProblem& p) { return p.C_in * p.channels_out_per_group() * p.K; }

template <class E>
double as_double(E value) {
  if constexpr (std::is_same_v<E, double>)
    return value;
  else
    return static_cast<double>(static_cast<float>(value));
}

/// Elements of E that start `misalignment` elements after an aligned address, so that kernels get unaligned pointers.
template <class E>
class Array {
 public:
  explicit Array(std::int64_t size, std::int64_t misalignment = 0)
      : storage_(static_cast<std::size_t>(size + misalignment)), offset_(misalignment) {}
  E* data() { return storage_.data() + offset_; }
  const E* data() const { return storage_.data() + offset_; }
  std::int64_t size() const { return static_cast<std::int64_t>(storage_.size()) - offset_; }
  E& operator[](std::int64_t i) { return data()[i]; }
  const E& operator[](std::int64_t i) const { return data()[i]; }

  /// -2, -1, 1 or 2: sums of their products are exact, so that every algorithm must agree bit for bit.
  Array& small_integers(unsigned seed) {
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < size(); ++i) {
      const unsigned pick = random() % 4;
      (*this)[i] = static_cast<E>(pick < 2 ? static_cast<float>(pick) - 2.0F : static_cast<float>(pick) - 1.0F);
    }
    return *this;
  }
  Array& normal(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    for (std::int64_t i = 0; i < size(); ++i) (*this)[i] = static_cast<E>(distribution(random));
    return *this;
  }
  /// Sets every bit: a NaN with bits that no kernel writes.
  Array& poison() {
    if (size() > 0) std::memset(static_cast<void*>(data()), 0xff, static_cast<std::size_t>(size()) * sizeof(E));
    return *this;
  }
  double norm() const {
    double sum = 0;
    for (std::int64_t i = 0; i < size(); ++i) sum += as_double((*this)[i]) * as_double((*this)[i]);
    return sum;
  }
  friend bool same_bits(const Array& a, const Array& b) {
    return a.size() == b.size() &&
           (a.size() == 0 || std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(E)) == 0);
  }

 private:
  std::vector<E> storage_;
  std::int64_t offset_;
};

/// All arrays of one problem, the inputs filled by `fill(array, seed)`.
template <class E>
struct ConvArrays {
  ConvProblem p;
  Array<E> x, w, y, bias_out, bias_in;

  template <class Fill>
  ConvArrays(const ConvProblem& problem, const Fill& fill, std::int64_t misalignment = 0)
      : p(problem),
        x(x_size(p), misalignment),
        w(w_size(p), misalignment),
        y(y_size(p), misalignment),
        bias_out(p.C_out, misalignment),
        bias_in(p.C_in, misalignment) {
    p.dtype = dtype_of<E>;
    fill(x, 1U), fill(w, 2U), fill(y, 3U), fill(bias_out, 4U), fill(bias_in, 5U);
  }

  /// The result of one direction on these inputs; the other two arrays are its operands.
  Array<E> run(ConvDirection direction, Algorithm algorithm, bool with_bias = true) const {
    Array<E> out(direction == ConvDirection::forward ? y.size() : direction == ConvDirection::dgrad ? x.size() : w.size());
    out.poison();
    if (direction == ConvDirection::forward)
      cpu::conv_forward(p, x.data(), w.data(), with_bias ? bias_out.data() : nullptr, out.data(), algorithm);
    else if (direction == ConvDirection::dgrad)
      cpu::conv_dgrad(p, y.data(), w.data(), with_bias ? bias_in.data() : nullptr, out.data(), algorithm);
    else
      cpu::conv_wgrad(p, x.data(), y.data(), out.data(), algorithm);
    return out;
  }

  /// The same in `Sum` arithmetic, one product after another, directly from the formula.
  template <class Sum>
  std::vector<Sum> formula(ConvDirection direction) const {
    std::vector<Sum> out;
    if (direction == ConvDirection::forward)
      for (std::int64_t i = 0; i < y.size(); ++i) out.push_back(static_cast<Sum>(as_double(bias_out[i / p.L_out % p.C_out])));
    else if (direction == ConvDirection::dgrad)
      for (std::int64_t i = 0; i < x.size(); ++i) out.push_back(static_cast<Sum>(as_double(bias_in[i / p.L_in % p.C_in])));
    else
      out.assign(static_cast<std::size_t>(w.size()), Sum{0});
    const std::int64_t R = p.channels_in_per_group(), M = p.channels_out_per_group();
    for (std::int64_t n = 0; n < p.N; ++n)
      for (std::int64_t ci = 0; ci < p.C_in; ++ci)
        for (std::int64_t m = 0; m < M; ++m)
          for (std::int64_t k = 0; k < p.K; ++k)
            for (std::int64_t i = 0; i < p.L_in; ++i) {
              const std::int64_t t = p.S * i + k * p.D - p.P_l;
              if (t < 0 || t >= p.L_out) continue;
              const std::int64_t xi = (n * p.C_in + ci) * p.L_in + i, yi = (n * p.C_out + ci / R * M + m) * p.L_out + t;
              const std::int64_t wi = (ci * M + m) * p.K + k;
              const auto at = [](const Array<E>& a, std::int64_t j) { return static_cast<Sum>(as_double(a[j])); };
              if (direction == ConvDirection::forward) out[static_cast<std::size_t>(yi)] += at(x, xi) * at(w, wi);
              if (direction == ConvDirection::dgrad) out[static_cast<std::size_t>(xi)] += at(y, yi) * at(w, wi);
              if (direction == ConvDirection::wgrad) out[static_cast<std::size_t>(wi)] += at(x, xi) * at(y, yi);
            }
    return out;
  }
};

inline constexpr auto kSmallIntegers = [](auto& array, unsigned seed) { array.small_integers(seed); };
inline constexpr auto kNormal = [](auto& array, unsigned seed) { array.normal(seed); };
inline constexpr ConvDirection kDirections[] = {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad};

/// Calls function() once with every instruction set of this machine, then restores the previous one.
template <class Function>
void for_each_isa(const Function& function) {
  const Isa before = cpu::current_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!cpu::isa_available(isa)) continue;
    cpu::set_isa(isa);
    function();
  }
  cpu::set_isa(before);
}

}  // namespace polyphase::testing
