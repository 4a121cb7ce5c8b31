#include "cuda/memory/block_pool.hpp"

#include <algorithm>
#include <utility>

namespace polyphase::cuda {
namespace {

using State = Block::State;

std::size_t round_up(std::size_t bytes) {
  return (bytes + PoolLists::kBlockUnit - 1) / PoolLists::kBlockUnit * PoolLists::kBlockUnit;
}

template <class T>
bool contains(const std::vector<T>& items, const T& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

BlockPool::BlockPool(MemorySource& source, BlockPoolOptions options) : source_(source), options_(options) {
  table_.reserve(4096);
}

BlockPool::~BlockPool() = default;

void* BlockPool::allocate(std::size_t bytes, StreamId stream, std::uint64_t graph) {
  const std::scoped_lock lock(mutex_);
  if (failure_hook_ && failure_hook_(bytes)) return nullptr;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
  const std::size_t size = round_up(bytes);
  PoolLists& lists = lists_of({graph, stream, size > options_.small_limit});
  Block* block = lists.take(size);
  if (block == nullptr) block = find(lists, size);
  if (block == nullptr) return nullptr;
  block->user = stream;
  block->serial = ++stats_.allocations;
  stats_.live_bytes += size;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  ++stats_.live_blocks;
  return reinterpret_cast<void*>(block->address);
}

PoolLists& BlockPool::lists_of(const PoolKey& key) {
  if (recent_ != nullptr && recent_->key() == key) return *recent_;
  auto found = std::find_if(pools_.begin(), pools_.end(), [&](const auto& lists) { return lists->key() == key; });
  if (found == pools_.end()) {
    if (key.graph != 0 && !contains(live_graphs_, key.graph)) live_graphs_.push_back(key.graph);
    const std::size_t reserve = key.large ? options_.large_reserve : options_.small_reserve;
    pools_.push_back(std::make_unique<PoolLists>(key, source_, table_, reserve));
    found = std::prev(pools_.end());
  }
  if (!retired_.empty()) std::erase(retired_, key.stream);  // the handle belongs to a new stream
  recent_ = found->get();
  return *recent_;
}

Block* BlockPool::take_or_grow(PoolLists& lists, std::size_t bytes) {
  if (Block* block = lists.take(bytes)) return block;
  const std::size_t budget = limit_ > pool_stats_.mapped_bytes ? limit_ - pool_stats_.mapped_bytes : 0;
  const PoolKey& key = lists.key();
  const auto other = std::find_if(pools_.begin(), pools_.end(), [&](const auto& each) {
    return each->key() == PoolKey{key.graph, key.stream, !key.large};
  });
  const std::optional<std::size_t> mapped = lists.grow(bytes, budget, other == pools_.end() ? nullptr : other->get());
  if (!mapped) return nullptr;
  if (*mapped > 0) ++pool_stats_.growths;
  pool_stats_.mapped_bytes += *mapped;
  pool_stats_.peak_mapped_bytes = std::max(pool_stats_.peak_mapped_bytes, pool_stats_.mapped_bytes);
  return lists.take(bytes);
}

/// The rest of allocate if the stream's own lists have no fitting block.
Block* BlockPool::find(PoolLists& lists, std::size_t bytes) {
  const bool capturing = lists.key().graph != 0;
  // Events must not be queried while a thread captures.
  if (!capturing) (void)poll_pending(false);
  if (Block* block = take_or_grow(lists, bytes)) return block;
  if (capturing) return nullptr;  // waiting is not allowed
  if (Block* block = borrow(bytes, lists.key().stream)) return block;
  if (poll_pending(true)) {
    if (Block* block = lists.take(bytes)) return block;
    if (Block* block = borrow(bytes, lists.key().stream)) return block;
  }
  wait_and_trim();
  ++pool_stats_.trims;
  return take_or_grow(lists, bytes);
}

Block* BlockPool::borrow(std::size_t bytes, StreamId stream) {
  for (const auto& lists : pools_) {
    if (lists->key().graph != 0) continue;
    Block* block = lists->take(bytes);
    if (block == nullptr) continue;
    const StreamId owner = lists->key().stream;
    if (owner == stream) return block;  // the other kind of this stream
    try {
      if (!is_retired(owner)) source_.order(owner, stream);
    } catch (...) {
      lists->give(block);
      throw;
    }
    ++pool_stats_.borrowed;
    return block;
  }
  return nullptr;
}

bool BlockPool::is_retired(StreamId stream) const { return contains(retired_, stream); }

void BlockPool::deallocate(void* pointer, StreamId stream, std::uint64_t graph) noexcept {
  if (pointer == nullptr) return;
  const std::scoped_lock lock(mutex_);
  const auto found = table_.find(reinterpret_cast<Address>(pointer));
  if (found == table_.end() || found->second->state != State::used) return;
  Block* block = found->second;
  stats_.live_bytes -= block->size;
  --stats_.live_blocks;
  const PoolKey& home = block->arena->lists->key();
  if (home.stream == stream && block->user == stream && home.graph == graph && block->streams.empty()) [[likely]] {
    block->arena->lists->give(block);
    return;
  }
  block->state = State::pending;
  pool_stats_.pending_bytes += block->size;
  std::erase(retired_, stream);  // it is in use: the handle belongs to a new stream
  try {
    give_or_defer(block, stream, graph);
  } catch (...) {
    // Without an event it is unknown when it is free. It stays pending forever, which is a leak and not a fault.
  }
}

/// Sends a pending block on: to wait for the end of a capture or for events, or to be freed immediately.
void BlockPool::give_or_defer(Block* block, StreamId stream, std::uint64_t graph) {
  const PoolKey& home = block->arena->lists->key();
  if (graph != 0) {
    deferred_.push_back({graph, block});
    return;
  }
  std::vector<StreamId> users = std::exchange(block->streams, {});
  users.push_back(stream);
  users.push_back(block->user);
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  pending_.reserve(pending_.size() + 1);
  for (const StreamId user : users) {
    // A graph's stream is private, and nothing is known about its later work.
    const bool in_order = user == home.stream && home.graph == 0;
    if (!in_order && !is_retired(user)) block->events.push_back(source_.record(user));
  }
  if (block->events.empty()) {
    free_pending(block);
  } else {
    pending_.push_back(block);
  }
}

void BlockPool::free_pending(Block* block) {
  pool_stats_.pending_bytes -= block->size;
  block->arena->lists->give(block);
}

/// Frees the pending blocks whose events are done, or, with `wait`, all. Returns whether any was freed.
bool BlockPool::poll_pending(bool wait) {
  const std::size_t before = pending_.size();
  for (std::size_t i = 0; i < pending_.size();) {
    Block* block = pending_[i];
    while (!block->events.empty()) {
      if (wait) {
        source_.wait(block->events.back());
      } else if (!source_.done(block->events.back())) {
        break;
      }
      block->events.pop_back();
    }
    if (!block->events.empty()) {
      ++i;
      continue;
    }
    pending_[i] = pending_.back();
    pending_.pop_back();
    free_pending(block);
  }
  return pending_.size() < before;
}

void BlockPool::wait_and_trim() {
  (void)poll_pending(true);
  for (const auto& lists : pools_) {
    const PoolKey& key = lists->key();
    if (key.graph != 0 && contains(live_graphs_, key.graph)) continue;
    if (key.graph == 0 && !is_retired(key.stream)) source_.synchronize(key.stream);
    pool_stats_.mapped_bytes -= lists->trim();
  }
  std::erase_if(pools_, [&](const auto& lists) {
    const PoolKey& key = lists->key();
    return lists->arenas().empty() && lists.get() != recent_ && key.graph != 0 && !contains(live_graphs_, key.graph);
  });
}

void BlockPool::record_stream(void* pointer, StreamId stream) {
  const std::scoped_lock lock(mutex_);
  const auto found = table_.find(reinterpret_cast<Address>(pointer));
  if (found == table_.end() || found->second->state != State::used) return;
  Block* block = found->second;
  if (stream != block->user && !contains(block->streams, stream)) block->streams.push_back(stream);
  std::erase(retired_, stream);
}

void BlockPool::retire_stream(StreamId stream) {
  const std::scoped_lock lock(mutex_);
  if (!is_retired(stream)) retired_.push_back(stream);
  for (const auto& [address, block] : table_) std::erase(block->streams, stream);
  for (const auto& lists : pools_) {
    if (lists->key().stream == stream && lists->key().graph == 0) pool_stats_.mapped_bytes -= lists->trim();
  }
}

void BlockPool::end_capture(std::uint64_t graph) {
  const std::scoped_lock lock(mutex_);
  const auto first =
      std::stable_partition(deferred_.begin(), deferred_.end(), [&](const Deferred& d) { return d.graph != graph; });
  const std::vector<Deferred> ended(first, deferred_.end());
  deferred_.erase(first, deferred_.end());
  // The captured work did not run, so only earlier work on the blocks' own streams can still use them.
  for (const Deferred& deferred : ended) give_or_defer(deferred.block, deferred.block->arena->lists->key().stream, 0);
}

void BlockPool::release_graph(std::uint64_t graph) {
  const std::scoped_lock lock(mutex_);
  std::erase(live_graphs_, graph);
  for (const auto& lists : pools_) {
    if (lists->key().graph == graph) pool_stats_.mapped_bytes -= lists->trim();
  }
}

void BlockPool::trim() {
  const std::scoped_lock lock(mutex_);
  wait_and_trim();
}

void BlockPool::set_limit(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  limit_ = bytes;
  if (pool_stats_.mapped_bytes > limit_) wait_and_trim();
}

std::size_t BlockPool::limit() const {
  const std::scoped_lock lock(mutex_);
  return limit_;
}

MemoryStats BlockPool::stats() const {
  const std::scoped_lock lock(mutex_);
  MemoryStats stats = stats_;
  stats.cached_bytes = pool_stats_.mapped_bytes - stats_.live_bytes;
  return stats;
}

BlockPoolStats BlockPool::pool_stats() const {
  const std::scoped_lock lock(mutex_);
  return pool_stats_;
}

void BlockPool::reset_peak() {
  const std::scoped_lock lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
  pool_stats_.peak_mapped_bytes = pool_stats_.mapped_bytes;
}

void BlockPool::set_failure_hook(std::function<bool(std::size_t)> hook) {
  const std::scoped_lock lock(mutex_);
  failure_hook_ = std::move(hook);
}

}  // namespace polyphase::cuda
