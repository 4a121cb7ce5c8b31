#pragma once
// Host bytes to the device without waiting for it: they pass through page-locked memory of the library's own.

#include <cuda_runtime.h>

#include <cstddef>

namespace polyphase::cuda {

inline constexpr std::size_t kStagingSlot = std::size_t{1} << 20U;  ///< bytes of a slot
inline constexpr std::size_t kStagingSlots = 16;                    ///< of a device

/// Copies `bytes` to the device, in order with the stream. `host_data` may be changed or freed as soon as this returns. Waits
/// for the device only where all slots hold bytes still on their way, and where there are more bytes than slots have.
void stage(void* device_data, const void* host_data, std::size_t bytes, cudaStream_t stream, int device);

}  // namespace polyphase::cuda
