// Compares the pool with a simple model: many streams, random requests, and every use of a block checked against earlier uses
// of its memory. Then the same from many threads.
#include "cuda/memory/block_pool_lists.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "cuda/memory/block_pool.hpp"
#include "cuda/memory/fake_memory.hpp"

namespace {

using polyphase::cuda::Address;
using polyphase::cuda::BlockPool;
using polyphase::cuda::StreamId;
using polyphase::testing::FakeMemory;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

struct Held {
  void* pointer;
  std::size_t bytes;  // rounded
};

std::size_t rounded(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

/// What must always hold: live blocks do not overlap, and the counts are exact.
class Model {
 public:
  void take(void* pointer, std::size_t bytes) {
    const auto begin = reinterpret_cast<Address>(pointer);
    const auto next = blocks_.lower_bound(begin);
    if (next != blocks_.end()) REQUIRE(begin + rounded(bytes) <= next->first);
    if (next != blocks_.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= begin);
    REQUIRE(begin % 512 == 0);
    blocks_[begin] = rounded(bytes);
    live_ += rounded(bytes);
    peak_ = std::max(peak_, live_);
  }
  void give(void* pointer) {
    const auto found = blocks_.find(reinterpret_cast<Address>(pointer));
    live_ -= found->second;
    blocks_.erase(found);
  }
  void check(const BlockPool& pool, const FakeMemory& memory) const {
    REQUIRE(pool.stats().live_bytes == live_);
    REQUIRE(pool.stats().live_blocks == blocks_.size());
    REQUIRE(pool.stats().peak_bytes == peak_);
    REQUIRE(pool.stats().cached_bytes == memory.mapped() - live_);
    REQUIRE(memory.faults == 0);
  }

 private:
  std::map<Address, std::size_t> blocks_;
  std::size_t live_ = 0, peak_ = 0;
};

std::size_t random_size(std::mt19937& random) {
  const double exponent = std::uniform_real_distribution<>(0, 24)(random);
  return static_cast<std::size_t>(std::exp2(exponent));
}

}  // namespace

TEST_CASE("random requests on many streams agree with a model") {
  for (const std::size_t total : {512 * kMiB, 64 * kMiB}) {  // the smaller one is often exhausted
    CAPTURE(total);
    FakeMemory memory(total);
    BlockPool pool(memory, {.small_limit = kMiB, .small_reserve = 16 * kMiB, .large_reserve = 48 * kMiB});
    Model model;
    std::vector<Held> held;
    std::mt19937 random(3);
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    int failures = 0;
    for (int step = 0; step < 20000; ++step) {
      const StreamId stream = 1 + below(4);
      const std::size_t what = below(100);
      if (what < 45) {
        const std::size_t bytes = random_size(random);
        void* pointer = pool.allocate(bytes, stream);
        if (pointer == nullptr) {
          ++failures;
        } else {
          model.take(pointer, bytes);
          held.push_back({pointer, rounded(bytes)});
          REQUIRE(memory.use(stream, reinterpret_cast<Address>(pointer), rounded(bytes)));
        }
      } else if (what < 92 && !held.empty()) {
        const std::size_t i = below(held.size());
        // A last use on the stream that frees the block. The user has ordered it after the work of the other streams.
        for (StreamId other = 1; other <= 4; ++other) memory.order(other, stream);
        REQUIRE(memory.use(stream, reinterpret_cast<Address>(held[i].pointer), held[i].bytes));
        pool.deallocate(held[i].pointer, stream);
        model.give(held[i].pointer);
        held[i] = held.back();
        held.pop_back();
      } else if (what < 99) {
        memory.run_all(1 + below(4));
      } else if (below(10) == 0) {
        pool.trim();
      }
      model.check(pool, memory);
    }
    CHECK((total == 64 * kMiB) == (failures > 0));
    for (const Held& block : held) pool.deallocate(block.pointer, 1);
    pool.trim();
    CHECK(memory.mapped() == 0);
    CHECK(memory.open_events() == 0);
  }
}

TEST_CASE("threads with a stream each never get each other's blocks") {
  FakeMemory memory(256 * kMiB);
  BlockPool pool(memory);
  Model model;
  std::mutex mutex;
  bool right = true;
  auto work = [&](StreamId stream) {
    std::mt19937 random(static_cast<unsigned>(stream));
    std::vector<Held> held;
    for (int step = 0; step < 4000; ++step) {
      if (held.size() < 20 && random() % 2 == 0) {
        const std::size_t bytes = random_size(random) / 8 + 1;
        void* pointer = pool.allocate(bytes, stream);
        const std::scoped_lock lock(mutex);
        right = right && pointer != nullptr;
        model.take(pointer, bytes);
        held.push_back({pointer, bytes});
      } else if (!held.empty()) {
        const std::scoped_lock lock(mutex);  // the model must release the block before the pool can hand it out again
        model.give(held.back().pointer);
        pool.deallocate(held.back().pointer, stream);
        held.pop_back();
      }
    }
    const std::scoped_lock lock(mutex);
    for (const Held& block : held) {
      model.give(block.pointer);
      pool.deallocate(block.pointer, stream);
    }
  };
  std::vector<std::thread> threads;
  for (StreamId stream = 1; stream <= 6; ++stream) threads.emplace_back(work, stream);
  for (std::thread& thread : threads) thread.join();
  CHECK(right);
  CHECK(memory.faults == 0);
  CHECK(pool.stats().live_blocks == 0);
  CHECK(pool.stats().live_bytes == 0);
  CHECK(pool.stats().cached_bytes == memory.mapped());
}

TEST_CASE("a repeated training step holds hardly more than its live peak") {
  FakeMemory memory(4096 * kMiB);
  BlockPool pool(memory);
  std::mt19937 random(5);
  std::vector<std::size_t> sizes(60);
  for (std::size_t& size : sizes) size = (1 + random() % 64) * 131072;
  for (int step = 0; step < 20; ++step) {
    std::vector<void*> kept;
    for (const std::size_t size : sizes) {  // forward: an output that stays, and a temporary buffer
      kept.push_back(pool.allocate(size, 1));
      pool.deallocate(pool.allocate(size / 2 + 512, 1), 1);
    }
    while (!kept.empty()) {  // backward: a gradient for each output, in reverse order
      void* gradient = pool.allocate(sizes[kept.size() - 1], 1);
      pool.deallocate(kept.back(), 1);
      kept.pop_back();
      pool.deallocate(gradient, 1);
    }
  }
  const double peak = static_cast<double>(pool.stats().peak_bytes);
  MESSAGE("mapped over live peak: ", static_cast<double>(pool.pool_stats().peak_mapped_bytes) / peak);
  CHECK(static_cast<double>(pool.pool_stats().peak_mapped_bytes) < 1.05 * peak);
  CHECK(pool.pool_stats().trims == 0);
}
