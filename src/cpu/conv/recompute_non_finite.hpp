#pragma once
// The fast convolutions read zeros past the ends of a row. Such a zero times an infinite or NaN number is NaN, although the sum
// has no such product. The drivers detect these numbers while packing, which costs next to nothing, and call this afterwards:
// outputs that are NaN are summed again from their real products. Internal to cpu/.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/conv/phase_plan.hpp"

namespace polyphase::cpu {

/// After forward or dgrad with a weight that is not finite: recomputes the outputs that read padding. The others are unchanged.
void recompute_at_ends(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                       void* out);

/// After wgrad with an x that is not finite at a position where a tap meets padding of y.
void recompute_weights(const ConvProblem& problem, const void* x, const void* y, void* w);

/// Whether packed x is finite at every position where a tap meets padding: outside `inner`. `packed` holds positions [first,
/// first + count) of a row, `height` numbers each. Inline, because there are usually few of them.
template <class T>
[[nodiscard]] bool finite_at_ends(const Interior& inner, std::int64_t first, std::int64_t count, const T* packed,
                                  std::int64_t height) {
  const std::int64_t begin = std::clamp<std::int64_t>(inner.begin - first, 0, count);
  const std::int64_t end = std::clamp<std::int64_t>(inner.end - first, begin, count);
  bool finite = true;
  for (std::int64_t i = 0; i < begin * height; ++i) finite &= std::isfinite(packed[i]);
  for (std::int64_t i = end * height; i < count * height; ++i) finite &= std::isfinite(packed[i]);
  return finite;
}

}  // namespace polyphase::cpu
