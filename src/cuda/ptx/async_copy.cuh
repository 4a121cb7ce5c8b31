#pragma once
// Copies from global to shared memory that a thread issues and waits for itself (PTX ISA, "cp.async").

#include <cstdint>

namespace polyphase::cuda::ptx {

/// One 4-byte word.
__device__ __forceinline__ void copy_word(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
/// The same, or zero if not `exists`; then `from` is not read.
__device__ __forceinline__ void copy_word_or_zero(std::uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(exists ? 4 : 0) : "memory");
}
/// 16 bytes, both addresses multiples of 16; bypasses L1.
__device__ __forceinline__ void copy_vector(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/// The same, or zeros if not `exists`; `from` must be a valid address in either case.
__device__ __forceinline__ void copy_vector_or_zero(std::uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}
/// Ends a group of this thread's copies; the group may be empty.
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all but this thread's last kGroups groups.
template <int kGroups>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

/// Arrives at a barrier (mbarrier.cuh) that counts this thread as one, when this thread's copies so far are complete.
__device__ __forceinline__ void copy_arrive(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace polyphase::cuda::ptx
