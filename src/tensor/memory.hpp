#pragma once
// Memory statistics of tensors on any device.

#include "../tensor/allocator.hpp"
#include "../tensor/device.hpp"

namespace polyphase {

/// Statistics of the device's allocator, for the whole process. Throws DeviceError if the device does not exist.
[[nodiscard]] MemoryStats memory_stats(Device device = default_device());
/// Resets peak_bytes to the current live_bytes.
void reset_peak_memory(Device device = default_device());
/// Returns cached memory to the system; on a GPU this waits for the work that may still use it.
void empty_cache(Device device = default_device());

}  // namespace polyphase
