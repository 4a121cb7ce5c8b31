#pragma once
// Memory asked for before it is needed (PTX ISA, "prefetch").

namespace polyphase::cuda::ptx {

/// The line of memory that `at` lies in goes to the second-level cache.
__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

}  // namespace polyphase::cuda::ptx
