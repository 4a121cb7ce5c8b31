#pragma once
// Sums in an order that a GPU's threads can also use, with an error that grows with the logarithm of the length.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/backend.hpp"

namespace polyphase::cpu {

/// The sum of `count` >= 1 values in the order of Backend::kRun.
template <class Sum, class Value>
Sum run_sum(const Value* values, std::int64_t count) {
  if (count <= Backend::kRun) {
    Sum sum = static_cast<Sum>(values[0]);
    for (std::int64_t j = 1; j < count; ++j) sum += static_cast<Sum>(values[j]);
    return sum;
  }
  const std::int64_t m = (count + Backend::kRun - 1) / Backend::kRun;
  std::vector<Sum> parts(static_cast<std::size_t>(m));
  std::transform(values, values + m, parts.begin(), [](const Value& value) { return static_cast<Sum>(value); });
  for (std::int64_t begin = m; begin < count; begin += m) {
    const std::int64_t n = std::min(m, count - begin);
    for (std::int64_t c = 0; c < n; ++c) parts[static_cast<std::size_t>(c)] += static_cast<Sum>(values[begin + c]);
  }
  return run_sum<Sum>(parts.data(), m);
}

}  // namespace polyphase::cpu
