#pragma once
// Quotients rounded to a side, and the multiples next to a number.

#include <cstdint>

namespace polyphase::cuda {

/// The least integer that is at least a / b. Not for negative numbers.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return divide_up(a, b) * b; }

/// The largest integer that is at most a / b, of any a.
[[nodiscard]] constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}
[[nodiscard]] constexpr std::int64_t floor_to(std::int64_t a, std::int64_t b) { return floor_divide(a, b) * b; }
[[nodiscard]] constexpr std::int64_t ceil_to(std::int64_t a, std::int64_t b) { return -floor_to(-a, b); }

}  // namespace polyphase::cuda
