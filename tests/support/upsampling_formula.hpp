#pragma once
// Linear upsampling by its definition: y[j] = x at (j + 0.5)/S - 0.5, interpolated between its two neighbours, constant beyond
// the ends.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase::testing {

struct UpsampleCase {
  std::int64_t rows, L, scale;
};
inline constexpr UpsampleCase kUpsampleCases[] = {{1, 1, 2},   {2, 1, 5},    {3, 2, 3},   {1, 7, 2},    {2, 300, 2},
                                                  {3, 257, 3}, {1, 1000, 4}, {2, 600, 5}, {1, 513, 16}, {2, 70, 17},
                                                  {2, 9, 33},  {3, 20, 100}, {1, 3, 5000}};

/// The operands of output j of a row: two elements and the second one's weight.
struct Between {
  std::int64_t lower, upper;
  double weight;
};
inline Between between(std::int64_t j, std::int64_t L, std::int64_t scale) {
  const std::int64_t place = std::max<std::int64_t>(2 * j + 1 - scale, 0), unit = 2 * scale;
  return {place / unit, std::min(place / unit + 1, L - 1), static_cast<double>(place % unit) / static_cast<double>(unit)};
}

/// (R, L) f64 on the host to (R, L*scale).
inline Tensor upsampled(const Tensor& x, std::int64_t scale) {
  const std::int64_t rows = x.size(0), L = x.size(1), P = L * scale;
  Tensor out = Tensor::empty({rows, P}, {.dtype = DType::f64, .device = Device::cpu()});
  for (std::int64_t j = 0; j < rows * P; ++j) {
    const Between at = between(j % P, L, scale);
    const double* row = x.data<double>() + j / P * L;
    out.data<double>()[j] = (1 - at.weight) * row[at.lower] + at.weight * row[at.upper];
  }
  return out;
}
/// The adjoint: (R, L*scale) f64 to (R, L).
inline Tensor upsampled_back(const Tensor& g, std::int64_t scale) {
  const std::int64_t rows = g.size(0), P = g.size(1), L = P / scale;
  Tensor out = Tensor::zeros({rows, L}, {.dtype = DType::f64, .device = Device::cpu()});
  for (std::int64_t j = 0; j < rows * P; ++j) {
    const Between at = between(j % P, L, scale);
    double* row = out.data<double>() + j / P * L;
    row[at.lower] += (1 - at.weight) * g.data<double>()[j];
    row[at.upper] += at.weight * g.data<double>()[j];
  }
  return out;
}

}  // namespace polyphase::testing
