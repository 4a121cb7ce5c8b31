#pragma once
// Copies host bytes to the device asynchronously, through page-locked memory of the library.

#include <cuda_runtime.h>

#include <cstddef>

namespace polyphase::cuda {

inline constexpr std::size_t kStagingSlot = std::size_t{1} << 20U;  ///< bytes per slot
inline constexpr std::size_t kStagingSlots = 16;                    ///< per device

/// Copies `bytes` to the device, in order with the stream. `host_data` may be changed or freed as soon as this returns. Waits
/// for the device only if all slots are still in flight, or if there are more bytes than all slots hold.
void stage(void* device_data, const void* host_data, std::size_t bytes, cudaStream_t stream, int device);

}  // namespace polyphase::cuda
