#pragma once
// Which element each position of a padded row has, by the plain formula.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "conv/problem.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::testing {

inline constexpr PaddingMode kPaddingModes[] = {PaddingMode::zeros, PaddingMode::reflect, PaddingMode::replicate};

/// A row of L elements and its padding on both sides.
struct PadCase {
  std::int64_t rows, L, left, right;
  [[nodiscard]] bool reflects() const { return left < L && right < L; }
};
inline constexpr PadCase kPadCases[] = {{1, 1, 0, 1},         {3, 1, 5, 2},       {2, 2, 1, 1},    {2, 33, 32, 32},
                                        {5, 8, 3, 4},         {7, 9, 1, 0},       {1, 20, 0, 200}, {3, 1000, 3, 70},
                                        {2, 4097, 4096, 513}, {1, 5, 70000, 4097}};

/// The index of the element in column j; -1: zero padding.
inline std::int64_t padded_from(std::int64_t j, const PadCase& at, PaddingMode mode) {
  const std::int64_t i = j - at.left;
  if (i >= 0 && i < at.L) return i;
  if (mode == PaddingMode::zeros) return -1;
  if (mode == PaddingMode::replicate) return std::clamp<std::int64_t>(i, 0, at.L - 1);
  return i < 0 ? -i : 2 * (at.L - 1) - i;
}

/// Integers from -8 to 8, exact in every dtype.
inline Tensor small_integers(const Shape& shape, DType dtype, std::int64_t start = 0) {
  Tensor numbers = Tensor::empty(shape, {.dtype = DType::i64, .device = Device::cpu()});
  for (std::int64_t i = 0; i < numbers.numel(); ++i) numbers.data<std::int64_t>()[i] = (i * 7 + start) % 17 - 8;
  return numbers.to(dtype);
}

}  // namespace polyphase::testing
