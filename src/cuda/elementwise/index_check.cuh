#pragma once
// Where kernels note a position from the user that is out of range.

#include <cstdint>

namespace polyphase::cuda {

/// In host memory that is mapped to the GPU; the host reads it after it has waited (report_bad_index()).
struct BadIndex {
  enum State : unsigned { kNothing, kClaimed, kWritten };
  unsigned state;  // a State
  std::int64_t position, length;
};

/// The one of a device; made at first use, never freed.
[[nodiscard]] BadIndex* bad_index_of(int device);

#ifdef __CUDACC__
/// The first position that any thread notes is kept.
__device__ inline void note_bad_index(BadIndex* bad, std::int64_t position, std::int64_t length) {
  if (atomicCAS(&bad->state, BadIndex::kNothing, BadIndex::kClaimed) != BadIndex::kNothing) return;
  bad->position = position;
  bad->length = length;
  __threadfence_system();
  *static_cast<volatile unsigned*>(&bad->state) = BadIndex::kWritten;
}
#endif

}  // namespace polyphase::cuda
