#pragma once
// Prefetches memory (PTX ISA, "prefetch").

namespace polyphase::cuda::ptx {

/// Prefetches the line of memory that contains `at` to L2.
__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/// The same if it exists. No branch: after one that lanes take apart the compiler no longer knows what a warp has in common.
__device__ __forceinline__ void prefetch_l2(const void* at, bool exists) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %1, 0;\n @p prefetch.global.L2 [%0];\n}" ::"l"(at), "r"(exists ? 1 : 0));
}

}  // namespace polyphase::cuda::ptx
