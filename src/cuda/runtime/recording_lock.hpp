#pragma once
// Keeps threads from waiting for the whole device while another one records a graph. Internal.

#include <shared_mutex>

namespace polyphase::cuda {

/// Held by a thread while it records: synchronize_device() on other threads waits for it.
[[nodiscard]] std::shared_lock<std::shared_mutex> recording_lock();

}  // namespace polyphase::cuda
