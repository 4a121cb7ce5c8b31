#pragma once
// A warp's list of tiles with suspect sums, in shared memory.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/suspect_count.cuh"

namespace polyphase::cuda::tensor_core {

/// The tiles in which a warp has sums that may be wrong, in shared memory. When there is no more place the last one stands for
/// all tiles from it on.
struct SuspectTiles {
  static constexpr int kMost = 16;
  static constexpr std::uint32_t kAnyColumn = 0xff;
  struct Entry {
    std::uint32_t above;              // Walk's
    SuspectCount suspect_count : 24;  // at most kNeverSplit
    std::uint32_t columns : 8;
  };
  Entry* of;
  int count = 0;
  /// By a whole warp. Bit i of `columns`: columns i and i + 8 of the warp's have such sums.
  __device__ __forceinline__ void add(std::uint32_t above, SuspectCount suspect_count, std::uint32_t columns = kAnyColumn) {
    if (threadIdx.x % 32 == 0) {
      const SuspectCount own = min(suspect_count, kNeverSplit);
      if (count < kMost)
        of[count] = {above, own, columns};
      else
        of[kMost - 1] = {of[kMost - 1].above, max(static_cast<SuspectCount>(of[kMost - 1].suspect_count), own), kAnyColumn};
    }
    count = min(count + 1, kMost);
  }
};

}  // namespace polyphase::cuda::tensor_core
