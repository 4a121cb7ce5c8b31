#pragma once
// How a kernel ends that leaves a source of mixed magnitudes to the by_tile kernel (is_mixed()): what was copied ahead has to
// arrive before its block's shared memory is another's.

#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// Waits for the first `copied` buffers of a ring: full(i) is the barrier of buffer i.
template <class Full>
__device__ __forceinline__ void wait_for_copies(int copied, const Full& full) {
  for (int i = 0; i < copied; ++i) ptx::mbarrier_wait(full(i), 0);
}

/// For a copier that runs ahead of the sampling. It asks once: before its ring would make it wait, or at its end.
class MixedExit {
 public:
  /// `header`: null where the source has no scale.
  __device__ __forceinline__ explicit MixedExit(const OperandHeader* header) : header_(header) {}
  /// Whether the copier ends here; all it has copied has arrived then. By whole warps, before they wait for a buffer of `ring`.
  template <class Full>
  [[nodiscard]] __device__ __forceinline__ bool is_before(const Ring& ring, int stages, const Full& full) {
    if (header_ == nullptr || ring.parity == 0) return false;
    return is_over(stages, full);
  }
  /// After the last copy.
  template <class Full>
  __device__ __forceinline__ void end(const Ring& ring, const Full& full) {
    if (header_ != nullptr) (void)is_over(ring.stage, full);
  }

 private:
  template <class Full>
  __device__ __forceinline__ bool is_over(int copied, const Full& full) {
    wait_for_grid_before();
    const bool is_over = is_mixed(header_);
    header_ = nullptr;
    if (is_over) wait_for_copies(copied, full);
    return is_over;
  }
  const OperandHeader* header_;
};

}  // namespace polyphase::cuda::tensor_core
