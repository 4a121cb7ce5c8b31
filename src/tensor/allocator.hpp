#pragma once
// The interface of every device's memory, and its statistics.

#include <cstddef>
#include <cstdint>

namespace polyphase {

/// Bytes and counts since the start (or since the last reset of the peak).
struct MemoryStats {
  std::size_t live_bytes = 0;     ///< allocated and not yet freed
  std::size_t cached_bytes = 0;   ///< held from the system, free for reuse
  std::size_t peak_bytes = 0;     ///< highest live_bytes
  std::uint64_t allocations = 0;  ///< number of calls of allocate
  std::uint64_t live_blocks = 0;
};

/// A source of device memory. Thread safe. Memory is aligned to at least 64 bytes and not initialised.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Throws OutOfMemory naming requested, live and cached bytes. `bytes` may be 0 (returns null).
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// `bytes` as passed to allocate. Never throws; null is ignored.
  virtual void deallocate(void* pointer, std::size_t bytes) noexcept = 0;
  [[nodiscard]] virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  /// Returns cached memory to the system.
  virtual void trim() = 0;
};

}  // namespace polyphase
