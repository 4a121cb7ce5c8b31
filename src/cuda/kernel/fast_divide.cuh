#pragma once
// Division by a number that is known at launch: one multiply-high and one shift.

#include <cstdint>

namespace polyphase::cuda {

/// n / divisor for n < 2^31 and 1 <= divisor < 2^31 (Granlund and Montgomery, "Division by invariant integers", PLDI 1994).
struct FastDivide {
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 0;
  std::uint32_t divisor = 1;

  FastDivide() = default;
  explicit FastDivide(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    const std::uint64_t one = 1;
    multiplier = static_cast<std::uint32_t>(((one << 32) * ((one << shift) - d)) / d + 1);
  }
#ifdef __CUDACC__
  __device__ __forceinline__ std::uint32_t divide(std::uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
#endif
};

}  // namespace polyphase::cuda
