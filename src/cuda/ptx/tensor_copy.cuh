#pragma once
// Copies of boxes of a tensor between global and shared memory (PTX ISA, "cp.async.bulk.tensor").

#include <cuda.h>

#include <cstdint>

namespace polyphase::cuda::ptx {

/// Copies the box at (inner, middle, outer) of a map's three dimensions; parts outside the tensor are zero. The whole box
/// counts on `barrier`. `map`: in constant or global memory.
__device__ __forceinline__ void tensor_copy(std::uint32_t to, const CUtensorMap* map, int inner, int middle, int outer,
                                            std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(inner), "r"(middle), "r"(outer)
      : "memory");
}

/// Cache policies for L2: lines that are evicted last, and the default (PTX ISA, "createpolicy").
__device__ __forceinline__ std::uint64_t staying_lines() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ std::uint64_t usual_lines() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The same copy with a cache policy for L2.
__device__ __forceinline__ void tensor_copy(std::uint32_t to, const CUtensorMap* map, int inner, int middle, int outer,
                                            std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5}], "
      "[%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(inner), "r"(middle), "r"(outer), "l"(policy)
      : "memory");
}

/// Writes the box of shared memory at `from` to (inner, middle, outer) of a map's tensor, in the group that bulk_commit() ends;
/// parts outside the tensor are not written. fence_async_shared() must follow the writes to shared memory.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, int inner, int middle, int outer, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from),
               "r"(inner), "r"(middle), "r"(outer)
               : "memory");
}

}  // namespace polyphase::cuda::ptx
