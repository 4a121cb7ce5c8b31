#pragma once
// A warp's list of tiles with suspect sums, in shared memory.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/suspect_count.cuh"

namespace polyphase::cuda::tensor_core {

/// The tiles in which a warp has suspect sums, in shared memory. If the list is full, its last entry stands for all tiles from
/// there on.
struct SuspectTiles {
  static constexpr int kMost = 16;
  static constexpr std::uint32_t kAnyColumn = 0xff;
  struct Entry {
    std::uint32_t above;              // as in Walk
    SuspectCount suspect_count : 24;  // at most kNeverSplit
    std::uint32_t columns : 8;
  };
  Entry* of;
  int count = 0;
  /// Called by a whole warp. Bit i of `columns`: columns i and i + 8 of the warp have suspect sums.
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
