#pragma once
// The basis of a pool of device memory: address space, memory mapped into it, and the order of streams. A GPU implements it
// (virtual_memory.hpp); tests use plain numbers. Internal; no CUDA headers.

#include <cstddef>
#include <cstdint>

namespace polyphase::cuda {

using Address = std::uintptr_t;
using StreamId = std::uintptr_t;  ///< a cudaStream_t
using EventId = std::uintptr_t;   ///< a recorded event; 0 is none

/// Called with the pool's lock held, so by one thread at a time.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  /// Reserves address space of `bytes` (a multiple of granularity()) without memory; 0 if there is none.
  [[nodiscard]] virtual Address reserve(std::size_t bytes) = 0;
  /// Releases what reserve returned; all of it is unmapped.
  virtual void release(Address address, std::size_t bytes) noexcept = 0;
  /// Bytes that map() may find, at most.
  [[nodiscard]] virtual std::size_t available() = 0;
  /// Maps memory to [address, address + bytes), multiples of granularity(); false if there is none.
  [[nodiscard]] virtual bool map(Address address, std::size_t bytes) = 0;
  /// Unmaps the memory of one call of map. Nothing uses it any more.
  virtual void unmap(Address address, std::size_t bytes) noexcept = 0;
  /// Moves the memory of one call of map from `from` to `to`, contents undefined; false if that is not possible. Earlier work
  /// may still use it through `from`, which stays valid until it is unmapped; new work may not.
  [[nodiscard]] virtual bool move(Address from, Address to, std::size_t bytes) = 0;
  [[nodiscard]] virtual std::size_t granularity() const = 0;

  /// Records an event after all work issued to the stream so far. It exists until done() returns true or wait() returns.
  [[nodiscard]] virtual EventId record(StreamId stream) = 0;
  [[nodiscard]] virtual bool done(EventId event) = 0;
  virtual void wait(EventId event) = 0;
  /// Work issued to `later` from now on runs after all work issued to `earlier` so far. The host does not wait.
  virtual void order(StreamId earlier, StreamId later) = 0;
  /// Waits on the host for all work issued to the stream.
  virtual void synchronize(StreamId stream) = 0;
};

}  // namespace polyphase::cuda
