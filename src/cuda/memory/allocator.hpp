#pragma once
// The device's allocator, and RAII memory for kernels. Internal: no CUDA headers needed here.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/memory/memory_source.hpp"
#include "tensor/allocator.hpp"

namespace polyphase::cuda {

// Defined in block_pool.hpp; most users of an allocator need neither.
struct BlockPoolStats;
struct LiveBlock;

/// Stream ordered: memory is allocated and freed on the calling thread's current stream. POLYPHASE_CUDA_ALLOCATOR, read once at
/// first use, selects one of three:
///   unset or "cache"   blocks cached by stream (block_pool.hpp)
///   "debug"            the same with guard bytes, checked at each free, and with NaN in fresh and freed memory; every free
///                      waits for the device
///   "malloc"           cudaMalloc and cudaFree, so that compute-sanitizer sees every overrun
class DeviceAllocator : public Allocator {
 public:
  /// Declares that work on `stream` (a cudaStream_t) uses memory that was allocated on another stream.
  virtual void record_stream(void* pointer, StreamId stream) = 0;
  /// Call before a stream is destroyed, when all of its work is done.
  virtual void retire_stream(StreamId stream) = 0;
  /// The most bytes to hold from the device.
  virtual void set_limit(std::size_t bytes) = 0;
  /// Every block as JSON (BlockPool::snapshot).
  [[nodiscard]] virtual std::string snapshot() const = 0;
  [[nodiscard]] virtual BlockPoolStats pool_stats() const = 0;
  /// Blocks allocated after the first `since` allocations and not freed, oldest first.
  [[nodiscard]] virtual std::vector<LiveBlock> live_blocks(std::uint64_t since = 0) const = 0;
  /// For tests: an allocation fails as if out of memory if the hook returns true. An empty function removes the hook.
  virtual void set_failure_hook(std::function<bool(std::size_t bytes)> hook) = 0;

  /// From now on the calling thread's memory is private to `graph`, an id from new_graph_id(), until end_capture.
  void begin_capture(std::uint64_t graph);
  void end_capture(std::uint64_t graph);
  /// Call when the graph is destroyed and its last run is done.
  virtual void release_graph(std::uint64_t graph) = 0;

 protected:
  /// The graph that the calling thread captures; 0 for none.
  [[nodiscard]] static std::uint64_t captured_graph();
  virtual void finish_capture(std::uint64_t graph) = 0;
};

[[nodiscard]] std::uint64_t new_graph_id();

/// The allocator of a device. Throws DeviceError if there is no such device.
[[nodiscard]] DeviceAllocator& allocator(int device);
/// Calls `visit` for the allocators made so far.
void for_each_allocator(const std::function<void(DeviceAllocator&)>& visit);

/// The leak report of tests: "2 blocks, 1536 bytes live: #7 1024 bytes, #9 512 bytes"; empty if nothing is live.
[[nodiscard]] std::string leak_report(const DeviceAllocator& allocator, std::uint64_t since);

/// Device memory for the duration of a scope, ordered on the current stream. Throws OutOfMemory.
class Buffer {
 public:
  Buffer(std::size_t bytes, int device) : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}
  ~Buffer() { allocator(device_).deallocate(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
  int device_;
};

}  // namespace polyphase::cuda
