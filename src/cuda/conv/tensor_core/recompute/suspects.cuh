#pragma once
// Which of a thread's sums are suspect, one bit each.

#include <cstdint>

namespace polyphase::cuda::tensor_core {

/// Bits of a thread's sums, by runs of positions.
template <int kRuns>
struct Suspects {
  std::uint32_t of_run[kRuns] = {};
};

}  // namespace polyphase::cuda::tensor_core
