#pragma once
// The three device allocators, and what stands before them (see allocator.hpp). Internal: includes CUDA headers.

#include <map>
#include <mutex>
#include <string>
#include <unordered_set>

#include "cuda/memory/allocator.hpp"
#include "cuda/memory/block_pool.hpp"
#include "cuda/memory/virtual_memory.hpp"

namespace polyphase::cuda {

/// Throws the OutOfMemory of a device: requested, live, cached, free and total bytes.
[[noreturn]] void throw_out_of_memory(int device, std::size_t bytes, const MemoryStats& stats, std::size_t limit);

/// Blocks cached by stream over virtual memory.
class CachingAllocator final : public DeviceAllocator {
 public:
  explicit CachingAllocator(int device) : device_(device), memory_(device), pool_(memory_, {.small_limit = kSmallLimit}) {}
  ~CachingAllocator() override;  ///< waits for the device: work on freed blocks may still be running

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  [[nodiscard]] MemoryStats stats() const override { return pool_.stats(); }
  void reset_peak() override { pool_.reset_peak(); }
  void trim() override { pool_.trim(); }
  void record_stream(void* pointer, StreamId stream) override { pool_.record_stream(pointer, stream); }
  void retire_stream(StreamId stream) override { pool_.retire_stream(stream); }
  void set_limit(std::size_t bytes) override { pool_.set_limit(bytes); }
  [[nodiscard]] std::string snapshot() const override { return pool_.snapshot(); }
  [[nodiscard]] BlockPoolStats pool_stats() const override { return pool_.pool_stats(); }
  [[nodiscard]] std::vector<LiveBlock> live_blocks(std::uint64_t since) const override { return pool_.live_blocks(since); }
  void set_failure_hook(std::function<bool(std::size_t)> hook) override { pool_.set_failure_hook(std::move(hook)); }
  void release_graph(std::uint64_t graph) override { pool_.release_graph(graph); }

  /// In the training runs of tests/cuda/memory/test_block_pool.cpp the pool holds 4.6 % (228 MiB live), 2.9 % (142 MiB) and 3.4
  /// % (166 MiB) more than is ever live; with 1 MiB here 4.6, 4.3 and 3.4, with 128 KiB 5.5, 2.9 and 4.6. Pieces of 2 MiB do
  /// not allow much less.
  static constexpr std::size_t kSmallLimit = std::size_t{512} << 10U;

 private:
  void finish_capture(std::uint64_t graph) override { pool_.end_capture(graph); }

  const int device_;
  VirtualMemory memory_;
  BlockPool pool_;
};

/// Wraps another allocator: | guard | block | guard |. The next allocate reports a guard that was overwritten, because freeing
/// cannot throw; its text names the block.
class GuardedAllocator final : public DeviceAllocator {
 public:
  GuardedAllocator(int device, DeviceAllocator& under) : device_(device), under_(under) {}

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  [[nodiscard]] MemoryStats stats() const override { return under_.stats(); }
  void reset_peak() override { under_.reset_peak(); }
  void trim() override { under_.trim(); }
  void record_stream(void* pointer, StreamId stream) override { under_.record_stream(base(pointer), stream); }
  void retire_stream(StreamId stream) override { under_.retire_stream(stream); }
  void set_limit(std::size_t bytes) override { under_.set_limit(bytes); }
  [[nodiscard]] std::string snapshot() const override { return under_.snapshot(); }
  [[nodiscard]] BlockPoolStats pool_stats() const override { return under_.pool_stats(); }
  [[nodiscard]] std::vector<LiveBlock> live_blocks(std::uint64_t since) const override { return under_.live_blocks(since); }
  void set_failure_hook(std::function<bool(std::size_t)> hook) override { under_.set_failure_hook(std::move(hook)); }
  void release_graph(std::uint64_t graph) override { under_.release_graph(graph); }

  static constexpr std::size_t kGuard = 512;  ///< bytes on either side; keeps the alignment

 private:
  void finish_capture(std::uint64_t graph) override { under_.end_capture(graph); }
  [[nodiscard]] static void* base(void* pointer) { return static_cast<char*>(pointer) - kGuard; }
  void check_guards(void* pointer, std::size_t bytes);

  const int device_;
  DeviceAllocator& under_;
  std::mutex mutex_;
  std::string damage_;                  // text for the next allocate; empty if there is no damage
  std::unordered_set<void*> recorded_;  // blocks whose guards a graph writes if it runs
};

/// Stands before another allocator: a thread that has a Workspace gets parts of it.
class WorkspaceAllocator final : public DeviceAllocator {
 public:
  WorkspaceAllocator(int device, DeviceAllocator& under) : device_(device), under_(under) {}

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  [[nodiscard]] MemoryStats stats() const override { return under_.stats(); }
  void reset_peak() override { under_.reset_peak(); }
  void trim() override { under_.trim(); }
  void record_stream(void* pointer, StreamId stream) override;
  void retire_stream(StreamId stream) override { under_.retire_stream(stream); }
  void set_limit(std::size_t bytes) override { under_.set_limit(bytes); }
  [[nodiscard]] std::string snapshot() const override { return under_.snapshot(); }
  [[nodiscard]] BlockPoolStats pool_stats() const override { return under_.pool_stats(); }
  [[nodiscard]] std::vector<LiveBlock> live_blocks(std::uint64_t since) const override { return under_.live_blocks(since); }
  void set_failure_hook(std::function<bool(std::size_t)> hook) override { under_.set_failure_hook(std::move(hook)); }
  void release_graph(std::uint64_t graph) override { under_.release_graph(graph); }

 private:
  void finish_capture(std::uint64_t graph) override { under_.end_capture(graph); }

  const int device_;
  DeviceAllocator& under_;
};

/// cudaMalloc and cudaFree.
class PlainAllocator final : public DeviceAllocator {
 public:
  explicit PlainAllocator(int device) : device_(device) {}

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  [[nodiscard]] MemoryStats stats() const override;
  void reset_peak() override;
  void trim() override {}                          // keeps nothing
  void record_stream(void*, StreamId) override {}  // cudaFree waits for every stream
  void retire_stream(StreamId) override {}
  void set_limit(std::size_t bytes) override;
  [[nodiscard]] std::string snapshot() const override;
  [[nodiscard]] BlockPoolStats pool_stats() const override;
  [[nodiscard]] std::vector<LiveBlock> live_blocks(std::uint64_t since) const override;
  void set_failure_hook(std::function<bool(std::size_t)> hook) override;
  void release_graph(std::uint64_t graph) override;

 private:
  struct Allocation {
    std::size_t bytes;
    std::uint64_t serial;
    std::uint64_t graph;  // the graph it was allocated for, which may still use it when it is freed; 0 for none
  };
  void finish_capture(std::uint64_t) override {}

  const int device_;
  mutable std::mutex mutex_;
  std::map<Address, Allocation> live_;
  std::vector<std::pair<std::uint64_t, void*>> kept_;  // freed, but still used by a graph
  MemoryStats stats_;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  std::function<bool(std::size_t)> failure_hook_;
};

}  // namespace polyphase::cuda
