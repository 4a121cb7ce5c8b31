#pragma once
// Rounded quotients and multiples.

#include <cstdint>

namespace polyphase::cuda {

/// The least integer >= a / b, for a >= 0 and b > 0.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return divide_up(a, b) * b; }

/// The largest integer <= a / b, for any a and b > 0.
[[nodiscard]] constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}
[[nodiscard]] constexpr std::int64_t floor_to(std::int64_t a, std::int64_t b) { return floor_divide(a, b) * b; }
[[nodiscard]] constexpr std::int64_t ceil_to(std::int64_t a, std::int64_t b) { return -floor_to(-a, b); }

}  // namespace polyphase::cuda
