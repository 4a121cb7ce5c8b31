#pragma once
// What a pool of device memory is built on: address space, memory mapped into it, and the order of streams. A GPU has one
// (virtual_memory.hpp); tests have one of plain numbers. Internal; no CUDA headers.

#include <cstddef>
#include <cstdint>

namespace polyphase::cuda {

using Address = std::uintptr_t;
using StreamId = std::uintptr_t;  ///< a cudaStream_t
using EventId = std::uintptr_t;   ///< an event that was recorded; 0 is none

/// Called with the pool's lock held, so from one thread at a time.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  /// Address space of `bytes` (a multiple of granularity()) without memory; 0 where there is none left.
  [[nodiscard]] virtual Address reserve(std::size_t bytes) = 0;
  /// Gives back what reserve returned, all of it unmapped.
  virtual void release(Address address, std::size_t bytes) noexcept = 0;
  /// Memory for [address, address + bytes), multiples of granularity(); false where there is none left.
  [[nodiscard]] virtual bool map(Address address, std::size_t bytes) = 0;
  /// Takes away what one call of map gave. Nothing uses it any more.
  virtual void unmap(Address address, std::size_t bytes) noexcept = 0;
  /// What one call of map gave to `from` is the memory of `to` from now on, contents undefined; false where that cannot be.
  /// Work given before may still use it through `from`, which stays until it is unmapped; nothing new may.
  [[nodiscard]] virtual bool move(Address from, Address to, std::size_t bytes) = 0;
  [[nodiscard]] virtual std::size_t granularity() const = 0;

  /// An event behind everything given to the stream so far. It lives until done() says yes or wait() returns.
  [[nodiscard]] virtual EventId record(StreamId stream) = 0;
  [[nodiscard]] virtual bool done(EventId event) = 0;
  virtual void wait(EventId event) = 0;
  /// What `later` is given from now on runs after all that `earlier` was given so far. The host does not wait.
  virtual void order(StreamId earlier, StreamId later) = 0;
  /// Waits on the host for everything given to the stream.
  virtual void synchronize(StreamId stream) = 0;
};

}  // namespace polyphase::cuda
