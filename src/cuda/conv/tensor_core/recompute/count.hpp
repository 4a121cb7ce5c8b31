#pragma once
// How often sums had to be computed again: the host's side. The device's side is count.cuh.

namespace polyphase::cuda {

/// Makes a file's counter, a `__device__` variable, one of those that cuda::computed_again() adds up. Before main(), by
/// count.cuh.
class RecomputeCounter {
 public:
  explicit RecomputeCounter(const void* symbol);
};

}  // namespace polyphase::cuda
