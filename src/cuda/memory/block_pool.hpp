#pragma once
// The pool of the device's caching allocator: which block a request gets, on which stream, and when it may be reused. It is
// bookkeeping on the host over a MemorySource; block_pool_lists.hpp has the blocks of one stream. Internal.
//
// Rules
// - A block belongs to the stream that it was first allocated for. Freed on that stream it is free for that stream immediately,
// in order.
// - Freed on another stream, or used by others (record_stream), it is pending until an event on each of them is done.
// - A stream that has no fitting block and cannot grow borrows a free block of another stream, ordered by an event.
// - If that fails, pending blocks are waited for; then free memory goes back to the system and growth is tried again; then it
// fails.
// - Requests up to 1 MiB and larger ones have separate address space, so that small blocks never fragment the space of large
// ones.
// - Memory allocated for a captured graph belongs to that graph until release_graph. Other blocks that are freed during the
// capture
//   wait for its end.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/memory/block_pool_lists.hpp"
#include "cuda/memory/memory_source.hpp"
#include "tensor/allocator.hpp"

namespace polyphase::cuda {

struct BlockPoolOptions {
  std::size_t small_limit = std::size_t{1} << 20U;    ///< largest request of the small kind
  std::size_t small_reserve = std::size_t{4} << 30U;  ///< address space of an arena of small blocks
  std::size_t large_reserve = std::size_t{64} << 30U;
};

/// Statistics beyond MemoryStats. mapped = live + cached, always.
struct BlockPoolStats {
  std::size_t mapped_bytes = 0;  ///< memory held from the system
  std::size_t peak_mapped_bytes = 0;
  std::size_t pending_bytes = 0;  ///< part of cached: freed, but another stream may still use it
  std::uint64_t growths = 0;      ///< number of times that memory was requested from the system
  std::uint64_t borrowed = 0;     ///< number of blocks lent to another stream
  std::uint64_t trims = 0;        ///< number of times that cached memory was released for lack of memory
};

/// A block in use.
struct LiveBlock {
  Address address = 0;
  std::size_t bytes = 0;     ///< rounded up to 512
  std::uint64_t serial = 0;  ///< the number of its allocation
};

/// A lock that is almost always free, at half of a mutex's cost: releasing it is a plain store. A waiting thread yields.
class PoolLock {
 public:
  void lock() {
    while (held_.test_and_set(std::memory_order_acquire)) {
      for (int i = 0; i < 100 && held_.test(std::memory_order_relaxed); ++i) {
      }
      if (held_.test(std::memory_order_relaxed)) std::this_thread::yield();
    }
  }
  void unlock() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_;
};

class BlockPool {
 public:
  explicit BlockPool(MemorySource& source, BlockPoolOptions options = {});
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// At least `bytes` (> 0) for work issued to `stream` from now on, aligned to 512. Null if there is no memory; the pool is
  /// then unchanged. `graph` is not 0 while the calling thread captures.
  [[nodiscard]] void* allocate(std::size_t bytes, StreamId stream, std::uint64_t graph = 0);
  /// Frees a block after all work issued so far to `stream` and to its record_stream()s. Unknown pointers are ignored.
  void deallocate(void* pointer, StreamId stream, std::uint64_t graph = 0) noexcept;
  /// Declares that work on `stream` uses the block: after it is freed, it is not reused before that work is done.
  void record_stream(void* pointer, StreamId stream);
  /// Call before the stream is destroyed, when all of its work is done.
  void retire_stream(StreamId stream);

  /// Blocks freed during the graph's capture are free now.
  void end_capture(std::uint64_t graph);
  /// The graph will not run again, and its last run is done: its memory becomes ordinary.
  void release_graph(std::uint64_t graph);

  /// Waits for the streams that have cached memory and returns it to the system.
  void trim();
  /// The most memory to hold from the system. A lower limit releases cached memory; memory in use stays.
  void set_limit(std::size_t bytes);
  [[nodiscard]] std::size_t limit() const;

  [[nodiscard]] MemoryStats stats() const;
  [[nodiscard]] BlockPoolStats pool_stats() const;
  void reset_peak();
  /// Every arena and block as JSON: `{"stats": {...}, "pools": [{"stream", "graph", "kind", "arenas": [{"address", "bytes",
  /// "blocks":
  /// [{"address", "bytes", "state"}]}]}]}`.
  [[nodiscard]] std::string snapshot() const;
  /// Blocks in use that were allocated after the first `since` allocations, oldest first.
  [[nodiscard]] std::vector<LiveBlock> live_blocks(std::uint64_t since = 0) const;

  /// For tests: called before every allocation, which fails if it returns true. An empty function removes the hook.
  void set_failure_hook(std::function<bool(std::size_t bytes)> hook);

 private:
  [[nodiscard]] PoolLists& lists_of(const PoolKey& key);
  [[nodiscard]] Block* take_or_grow(PoolLists& lists, std::size_t bytes);
  [[nodiscard]] Block* borrow(std::size_t bytes, StreamId stream);
  [[nodiscard]] Block* find(PoolLists& lists, std::size_t bytes);
  [[nodiscard]] bool is_retired(StreamId stream) const;
  void give_or_defer(Block* block, StreamId stream, std::uint64_t graph);
  void free_pending(Block* block);
  [[nodiscard]] bool poll_pending(bool wait);
  void wait_and_trim();

  MemorySource& source_;
  const BlockPoolOptions options_;
  mutable PoolLock mutex_;
  BlockTable table_;
  std::vector<std::unique_ptr<PoolLists>> pools_;
  PoolLists* recent_ = nullptr;
  std::vector<Block*> pending_;
  struct Deferred {
    std::uint64_t graph;
    Block* block;
  };
  std::vector<Deferred> deferred_;
  std::vector<StreamId> retired_;
  std::vector<std::uint64_t> live_graphs_;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  std::function<bool(std::size_t)> failure_hook_;
  MemoryStats stats_;  // cached_bytes is computed on request
  BlockPoolStats pool_stats_;
};

}  // namespace polyphase::cuda
