#include "cpu/memory/allocator.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tensor/error.hpp"

namespace pp = polyphase;
using pp::cpu::HostAllocator;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A system that has only `blocks_left` blocks.
int blocks_left = 0;
int blocks_out = 0;
void* scarce_allocate(std::size_t bytes, std::size_t alignment) {
  if (blocks_left == 0) return nullptr;
  --blocks_left;
  ++blocks_out;
  return pp::cpu::system_memory().allocate(bytes, alignment);
}
void scarce_release(void* pointer) {
  ++blocks_left;
  --blocks_out;
  pp::cpu::system_memory().release(pointer);
}
constexpr pp::cpu::SystemMemory kScarce = {scarce_allocate, scarce_release};

// A system that detects a second thread inside a call, and waits so that one can enter.
std::atomic<bool> occupied = false;
std::atomic<int> overlaps = 0;
void look_around() {
  overlaps += occupied.exchange(true);
  std::this_thread::yield();
  occupied = false;
}
constexpr pp::cpu::SystemMemory kNosy = {[](std::size_t bytes, std::size_t alignment) {
                                           look_around();
                                           return pp::cpu::system_memory().allocate(bytes, alignment);
                                         },
                                         [](void* pointer) {
                                           look_around();
                                           pp::cpu::system_memory().release(pointer);
                                         }};

bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

}  // namespace

TEST_CASE("size classes waste little and keep their order") {
  CHECK(HostAllocator::block_size(0) == 0);
  CHECK(HostAllocator::block_size(1) == 64);
  CHECK(HostAllocator::block_size(64) == 64);
  CHECK(HostAllocator::block_size(65) == 128);
  CHECK(HostAllocator::block_size(1025) == 1152);
  std::size_t previous = 0;
  for (std::size_t bytes = 1; bytes < 64 * kMiB; bytes += 1 + bytes / 37) {
    const std::size_t block = HostAllocator::block_size(bytes);
    CHECK(block >= bytes);
    CHECK(block % 64 == 0);
    CHECK(block >= previous);
    CHECK(block - bytes < 64 + bytes / 8);
    CHECK(HostAllocator::block_size(block) == block);
    previous = block;
  }
}

TEST_CASE("blocks are aligned, writable and distinct") {
  HostAllocator allocator(64 * kMiB);
  std::vector<std::pair<char*, std::size_t>> blocks;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{100000}, 2 * kMiB, 5 * kMiB}) {
    for (int copy = 0; copy < 3; ++copy) {
      auto* block = static_cast<char*>(allocator.allocate(bytes));
      CHECK(is_aligned(block, bytes >= 2 * kMiB ? 2 * kMiB : 64));
      std::memset(block, static_cast<int>(blocks.size()), bytes);
      blocks.emplace_back(block, bytes);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    CHECK(blocks[i].first[0] == static_cast<char>(i));
    CHECK(blocks[i].first[blocks[i].second - 1] == static_cast<char>(i));
    allocator.deallocate(blocks[i].first, blocks[i].second);
  }
  CHECK(allocator.stats().live_bytes == 0);
}

TEST_CASE("a freed block is handed out again for any size of its class, and only for those") {
  HostAllocator allocator(kMiB);
  void* first = allocator.allocate(1100);
  allocator.deallocate(first, 1100);
  void* larger = allocator.allocate(1153);
  CHECK(larger != first);
  void* second = allocator.allocate(1152);
  CHECK(second == first);
  allocator.deallocate(second, 1152);
  allocator.deallocate(larger, 1153);
}

TEST_CASE("nothing costs nothing") {
  HostAllocator allocator(kMiB);
  CHECK(allocator.allocate(0) == nullptr);
  allocator.deallocate(nullptr, 10);
  CHECK(allocator.stats().allocations == 0);
}

TEST_CASE("statistics are exact") {
  HostAllocator allocator(kMiB);
  void* a = allocator.allocate(100);   // 128
  void* b = allocator.allocate(1000);  // 1024
  pp::MemoryStats stats = allocator.stats();
  CHECK(stats.live_bytes == 1152);
  CHECK(stats.live_blocks == 2);
  CHECK(stats.allocations == 2);
  CHECK(stats.cached_bytes == 0);
  allocator.deallocate(b, 1000);
  stats = allocator.stats();
  CHECK(stats.live_bytes == 128);
  CHECK(stats.cached_bytes == 1024);
  CHECK(stats.peak_bytes == 1152);
  CHECK(stats.live_blocks == 1);
  allocator.reset_peak();
  CHECK(allocator.stats().peak_bytes == 128);
  allocator.trim();
  CHECK(allocator.stats().cached_bytes == 0);
  CHECK(allocator.stats().live_bytes == 128);
  allocator.deallocate(a, 100);
  CHECK(allocator.stats().allocations == 2);
}

TEST_CASE("the cache has a limit, and gives up what was unused the longest") {
  blocks_left = 100;
  HostAllocator allocator(4096, kScarce);
  SUBCASE("a block above the limit goes straight back") {
    allocator.deallocate(allocator.allocate(5000), 5000);
    CHECK(blocks_out == 0);
    CHECK(allocator.stats().cached_bytes == 0);
  }
  SUBCASE("the oldest class makes room") {
    void* old_block = allocator.allocate(2048);
    void* middle = allocator.allocate(1024);
    void* late = allocator.allocate(1536);
    allocator.deallocate(old_block, 2048);
    allocator.deallocate(middle, 1024);
    CHECK(allocator.stats().cached_bytes == 3072);
    allocator.deallocate(late, 1536);
    CHECK(allocator.stats().cached_bytes == 1024 + 1536);
    CHECK(blocks_out == 2);
  }
  SUBCASE("of one class no more than fits") {
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(allocator.allocate(1024));
    for (void* block : blocks) allocator.deallocate(block, 1024);
    CHECK(allocator.stats().cached_bytes == 4096);
    CHECK(blocks_out == 4);
  }
  allocator.trim();
  CHECK(blocks_out == 0);
}

TEST_CASE("out of memory: the cache is freed first, then the error lists the memory") {
  blocks_left = 2;
  HostAllocator allocator(kMiB, kScarce);
  void* kept = allocator.allocate(1000);
  allocator.deallocate(allocator.allocate(2000), 2000);
  CHECK(allocator.stats().cached_bytes == 2048);
  void* other = allocator.allocate(3000);  // only possible after the 2048 bytes are released
  CHECK(allocator.stats().cached_bytes == 0);
  const pp::MemoryStats before = allocator.stats();
  CHECK_THROWS_WITH_AS((void)allocator.allocate(5000),
                       doctest::Contains("cpu: out of memory: asked 5000 bytes, live 4096, cached 0, total "), pp::OutOfMemory);
  CHECK(allocator.stats().live_bytes == before.live_bytes);
  CHECK(allocator.stats().allocations == before.allocations);
  CHECK_THROWS_WITH_AS((void)allocator.allocate(SIZE_MAX - 3), doctest::Contains("asked 18446744073709551612 bytes"),
                       pp::OutOfMemory);
  allocator.deallocate(kept, 1000);
  allocator.deallocate(other, 3000);
}

TEST_CASE("threads take turns") {
  HostAllocator allocator(0, kNosy);  // no cache: every call reaches the system, under the lock
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator] {
      for (int i = 0; i < 500; ++i) allocator.deallocate(allocator.allocate(100), 100);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(overlaps == 0);
  CHECK(allocator.stats().live_bytes == 0);
  CHECK(allocator.stats().live_blocks == 0);
  CHECK(allocator.stats().allocations == 2000);
}

TEST_CASE("the hook takes memory away; the allocator is as before") {
  polyphase::cpu::HostAllocator allocator(1 << 20);
  void* kept = allocator.allocate(100);
  allocator.set_failure_hook([](std::size_t bytes) { return bytes > 1000; });
  CHECK_THROWS_AS((void)allocator.allocate(1001), polyphase::OutOfMemory);
  void* small = allocator.allocate(1000);
  allocator.set_failure_hook({});
  void* large = allocator.allocate(1001);
  CHECK(allocator.stats().live_blocks == 3);
  allocator.deallocate(kept, 100);
  allocator.deallocate(small, 1000);
  allocator.deallocate(large, 1001);
  CHECK(allocator.stats().live_bytes == 0);
}
