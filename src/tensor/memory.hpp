#pragma once
// How much memory tensors take, on any device.

#include "../tensor/allocator.hpp"
#include "../tensor/device.hpp"

namespace polyphase {

/// Counts of the device's allocator, for the whole process. Throws DeviceError where the device does not exist.
[[nodiscard]] MemoryStats memory_stats(Device device = default_device());
/// Lets peak_bytes start again from what is live now.
void reset_peak_memory(Device device = default_device());
/// Gives cached memory back to the system; on a GPU this waits for the work that may still use it.
void empty_cache(Device device = default_device());

}  // namespace polyphase
