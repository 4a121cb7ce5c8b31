#pragma once
// Values that the compiler must not reason about.

#include <cstdint>

namespace polyphase::cuda::ptx {

/// Makes `value` opaque to the compiler, which then recomputes what depends on it.
__device__ __forceinline__ void opaque(std::uint32_t& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void opaque(int& value) { asm volatile("" : "+r"(value)); }

}  // namespace polyphase::cuda::ptx
