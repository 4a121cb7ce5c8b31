// y[n,co,t] = b[co] + sum over ci, k with t = S*i + k*D - P_l of x[n,ci,i] * w[ci,co,k], and its two gradients. Per sample,
// group and tap k it is one product of the matrix w(:, :, k) with the columns of x or y, all in double. Deliberately simple and
// slow: no blocking, no threads, every operand is converted first.

#include "cpu/conv/reference.hpp"

#include <type_traits>
#include <vector>

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "cpu/conv/conv_element.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Matrix>;  // (channels of one group, length) of one sample
using TapWeights = Eigen::Map<Matrix, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;  // (C_in/G, C_out/G) of one tap

/// One array in double, read from the user's type and written back to it.
template <class E>
std::vector<double> to_double(const void* from, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  if (from == nullptr) return values;
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<double>(
        static_cast<std::conditional_t<std::is_same_v<E, double>, double, float>>(static_cast<const E*>(from)[i]));
  return values;
}
template <class E>
void from_double(const std::vector<double>& values, void* to) {
  for (std::size_t i = 0; i < values.size(); ++i)
    static_cast<E*>(to)[i] =
        static_cast<E>(static_cast<std::conditional_t<std::is_same_v<E, double>, double, float>>(values[i]));
}

/// Neighbouring columns of x.
struct Columns {
  std::int64_t first, count;
};

/// The three arrays of a problem and the views that the sums use.
struct Arrays {
  const ConvProblem& p;
  std::vector<double> x, w, y;

  Rows x_rows(std::int64_t n, std::int64_t g) {
    return Rows(x.data() + (n * p.C_in + g * p.channels_in_per_group()) * p.L_in, p.channels_in_per_group(), p.L_in);
  }
  Rows y_rows(std::int64_t n, std::int64_t g) {
    return Rows(y.data() + (n * p.C_out + g * p.channels_out_per_group()) * p.L_out, p.channels_out_per_group(), p.L_out);
  }
  TapWeights tap(std::int64_t g, std::int64_t k) {
    const std::int64_t group = p.channels_in_per_group() * p.channels_out_per_group() * p.K;
    return TapWeights(w.data() + g * group + k, p.channels_in_per_group(), p.channels_out_per_group(),
                      Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(p.channels_out_per_group() * p.K, p.K));
  }
  /// The first of x's columns i that tap k pairs with a column S*i + k*D - P_l of y, and their number.
  [[nodiscard]] Columns joined(std::int64_t k) const {
    std::int64_t first = 0, last = p.L_in;
    while (first < last && p.S * first + k * p.D < p.P_l) ++first;
    while (first < last && p.S * (last - 1) + k * p.D - p.P_l >= p.L_out) --last;
    return {first, last - first};
  }
  /// Those columns of y: (channels, columns.count).
  Matrix y_under_tap(std::int64_t n, std::int64_t g, std::int64_t k, Columns columns) {
    Matrix under(p.channels_out_per_group(), columns.count);
    const Rows all = y_rows(n, g);
    for (std::int64_t j = 0; j < columns.count; ++j) under.col(j) = all.col(p.S * (columns.first + j) + k * p.D - p.P_l);
    return under;
  }
};

template <class Function>
void for_each_tap(const ConvProblem& p, const Function& function) {
  for (std::int64_t n = 0; n < p.N; ++n)
    for (std::int64_t g = 0; g < p.G; ++g)
      for (std::int64_t k = 0; k < p.K; ++k) function(n, g, k);
}

/// `values` (N, channels, length) set to the bias of each channel.
void fill_bias(std::vector<double>& values, const std::vector<double>& bias, std::int64_t length) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = bias[i / static_cast<std::size_t>(length) % bias.size()];
}

std::int64_t x_size(const ConvProblem& p) { return p.N * p.C_in * p.L_in; }
std::int64_t y_size(const ConvProblem& p) { return p.N * p.C_out * p.L_out; }
std::int64_t w_size(const ConvProblem& p) { return p.C_in * p.channels_out_per_group() * p.K; }

template <class E>
void forward(const ConvProblem& p, const void* x, const void* w, const void* bias, void* y) {
  Arrays a{p, to_double<E>(x, x_size(p)), to_double<E>(w, w_size(p)), to_double<E>(nullptr, y_size(p))};
  fill_bias(a.y, to_double<E>(bias, p.C_out), p.L_out);
  for_each_tap(p, [&](std::int64_t n, std::int64_t g, std::int64_t k) {
    const Matrix product = a.tap(g, k).transpose() * a.x_rows(n, g);
    for (std::int64_t i = 0; i < p.L_in; ++i) {
      const std::int64_t t = p.S * i + k * p.D - p.P_l;
      if (t >= 0 && t < p.L_out) a.y_rows(n, g).col(t) += product.col(i);
    }
  });
  from_double<E>(a.y, y);
}

template <class E>
void dgrad(const ConvProblem& p, const void* y, const void* w, const void* bias, void* x) {
  Arrays a{p, to_double<E>(nullptr, x_size(p)), to_double<E>(w, w_size(p)), to_double<E>(y, y_size(p))};
  fill_bias(a.x, to_double<E>(bias, p.C_in), p.L_in);
  for_each_tap(p, [&](std::int64_t n, std::int64_t g, std::int64_t k) {
    const Columns columns = a.joined(k);
    a.x_rows(n, g).middleCols(columns.first, columns.count) += a.tap(g, k) * a.y_under_tap(n, g, k, columns);
  });
  from_double<E>(a.x, x);
}

template <class E>
void wgrad(const ConvProblem& p, const void* x, const void* y, void* w) {
  Arrays a{p, to_double<E>(x, x_size(p)), to_double<E>(nullptr, w_size(p)), to_double<E>(y, y_size(p))};
  for_each_tap(p, [&](std::int64_t n, std::int64_t g, std::int64_t k) {
    const Columns columns = a.joined(k);
    a.tap(g, k) += a.x_rows(n, g).middleCols(columns.first, columns.count) * a.y_under_tap(n, g, k, columns).transpose();
  });
  from_double<E>(a.w, w);
}

}  // namespace

void reference_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y) {
  with_element(problem, [&](auto element) { forward<decltype(element)>(problem, x, w, bias, y); });
}

void reference_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x) {
  with_element(problem, [&](auto element) { dgrad<decltype(element)>(problem, y, w, bias, x); });
}

void reference_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w) {
  with_element(problem, [&](auto element) { wgrad<decltype(element)>(problem, x, y, w); });
}

}  // namespace polyphase::cpu
