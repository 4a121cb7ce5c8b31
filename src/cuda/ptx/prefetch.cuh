#pragma once
// Prefetches memory (PTX ISA, "prefetch").

namespace polyphase::cuda::ptx {

/// Prefetches the line of memory that contains `at` to L2.
__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

}  // namespace polyphase::cuda::ptx
