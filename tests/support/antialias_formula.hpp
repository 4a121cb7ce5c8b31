#pragma once
// An activation at twice the sampling rate by its definition, and its gradients by the chain rule, in f64 on the host.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tensor/tensor_backend.hpp"

namespace polyphase::testing {

/// Lengths of rows whose ends overlap, of whole vectors, and of whole tasks of both devices' kernels; each also plus and minus
/// one.
inline constexpr std::int64_t kAntialiasLengths[] = {1,   2,   3,   4,    5,    6,    11,   12,   33,   500,  503, 504,
                                                     505, 507, 508, 1021, 1022, 1023, 1024, 1025, 1026, 1027, 2051};

/// Tensors of x's shape or (C); `size`: the sums of magnitudes of the terms of alpha's and beta's gradients.
struct AntialiasedFormula {
  Tensor y, x, alpha, beta, alpha_size, beta_size;
};

/// Operands in f64 on the host; `g`: the gradient of y.
inline AntialiasedFormula antialiased_formula(const AntialiasedSnake& in, const Tensor& g) {
  constexpr std::int64_t K = TensorBackend::kAntialiasTaps;
  const std::int64_t N = in.x.size(0), C = in.x.size(1), L = in.x.size(2);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, {.dtype = DType::f64, .device = Device::cpu()}); };
  const AntialiasedFormula out{zeros(in.x.shape()), zeros(in.x.shape()), zeros({C}), zeros({C}), zeros({C}), zeros({C})};
  const double *u = in.up.data<double>(), *d = in.down.data<double>();
  const auto clamped = [](std::int64_t i, std::int64_t end) { return std::clamp<std::int64_t>(i, 0, end - 1); };
  for (std::int64_t row = 0; row < N * C; ++row) {
    const std::int64_t c = row % C;
    const double a = in.alpha.data<double>()[c], b = in.beta.data<double>()[c];
    const double *x = in.x.data<double>() + row * L, *gradient = g.data<double>() + row * L;
    std::vector<double> v(static_cast<std::size_t>(2 * L)), dw(v.size());
    const auto at = [](std::vector<double>& values, std::int64_t s) -> double& { return values[static_cast<std::size_t>(s)]; };
    // Calls fold(i, k) for every input i, also outside of the row, and its tap k at position s.
    const auto for_taps = [&](std::int64_t s, const auto& fold) {
      for (std::int64_t i = s / 2 - K; i <= s / 2 + K; ++i)
        if (const std::int64_t k = s + K / 2 - 1 - 2 * i; k >= 0 && k < K) fold(clamped(i, L), k);
    };
    for (std::int64_t s = 0; s < 2 * L; ++s) for_taps(s, [&](std::int64_t i, std::int64_t k) { at(v, s) += 2 * u[k] * x[i]; });
    for (std::int64_t t = 0; t < L; ++t)
      for (std::int64_t k = 0; k < K; ++k) {
        const std::int64_t s = clamped(2 * t + k - (K / 2 - 1), 2 * L);
        const double sine = std::sin(a * at(v, s));
        out.y.data<double>()[row * L + t] += d[k] * (at(v, s) + sine * sine / b);
        at(dw, s) += d[k] * gradient[t];
      }
    for (std::int64_t s = 0; s < 2 * L; ++s) {
      const double value = at(v, s), sine = std::sin(a * value), slope = std::sin(2 * a * value) / b;
      const double of_alpha = at(dw, s) * value * slope, of_beta = -at(dw, s) * sine * sine / (b * b);
      out.alpha.data<double>()[c] += of_alpha;
      out.beta.data<double>()[c] += of_beta;
      out.alpha_size.data<double>()[c] += std::abs(of_alpha);
      out.beta_size.data<double>()[c] += std::abs(of_beta);
      const double dv = at(dw, s) * (1 + a * slope);
      for_taps(s, [&](std::int64_t i, std::int64_t k) { out.x.data<double>()[row * L + i] += 2 * u[k] * dv; });
    }
  }
  return out;
}

/// Random operands in f64, rounded to their dtypes before: x and g to `dtype`, the others to `parameters`.
struct AntialiasedOperands {
  AntialiasedSnake in;
  Tensor g;
};
inline AntialiasedOperands antialiased_operands(const Shape& shape, DType dtype, DType parameters) {
  const auto host = [](const Shape& of, double low, double high, std::uint64_t seed, DType type) {
    Generator generator(seed);
    return Tensor::uniform(of, low, high, {.dtype = DType::f64, .device = Device::cpu()}, &generator).to(type);
  };
  return {{host(shape, -2, 2, 1, dtype), host({shape[1]}, 0.5, 2, 2, parameters), host({shape[1]}, 0.5, 2, 3, parameters),
           host({12}, -0.3, 0.4, 4, parameters), host({12}, -0.4, 0.3, 5, parameters)},
          host(shape, -1, 1, 6, dtype)};
}
inline AntialiasedOperands in_f64(const AntialiasedOperands& from) {
  const auto wide = [](const Tensor& tensor) { return tensor.to(DType::f64); };
  return {{wide(from.in.x), wide(from.in.alpha), wide(from.in.beta), wide(from.in.up), wide(from.in.down)}, wide(from.g)};
}

/// The largest |difference| of gradients that are sums, minus `unit` times the result, over the sum of magnitudes.
inline double sum_error(const Tensor& got, const Tensor& expected, const Tensor& size, double unit) {
  double worst = 0;
  const std::vector<double> values = got.to(Device::cpu()).to(DType::f64).to_vector<double>();
  for (std::int64_t c = 0; c < expected.numel(); ++c) {
    const double exact = expected.data<double>()[c];
    const double error = std::abs(values[static_cast<std::size_t>(c)] - exact) - unit * std::abs(exact);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error / size.data<double>()[c]);
  }
  return worst;
}

}  // namespace polyphase::testing
