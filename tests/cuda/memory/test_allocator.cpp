#include "cuda/memory/allocator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "cuda/cuda.hpp"
#include "cuda/delay.hpp"
#include "cuda/memory/allocator_caching.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/skip.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;
using polyphase::testing::Delay;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

std::vector<unsigned char> read(const void* pointer, std::size_t bytes) {
  std::vector<unsigned char> host(bytes);
  CHECK_CUDA(cudaMemcpyAsync(host.data(), pointer, bytes, cudaMemcpyDeviceToHost, cuda::current_stream(0)));
  CHECK_CUDA(cudaStreamSynchronize(cuda::current_stream(0)));
  return host;
}

}  // namespace

TEST_CASE("without a GPU asking for its allocator says what is missing") {
  if (cuda::device_count() > 0) SKIP_TEST("there is a CUDA device");
  CHECK_THROWS_AS((void)cuda::allocator(0), pp::DeviceError);
  CHECK_THROWS_AS((void)cuda::memory_stats(0), pp::DeviceError);
}

TEST_CASE("memory is there: every byte can be written and read, old contents survive growth") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::CachingAllocator allocator(0);
  struct Held {
    void* pointer;
    std::size_t bytes;
    int value;
  };
  std::vector<Held> held;
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    if (!held.empty() && random() % 3 == 0) {
      const std::size_t at = random() % held.size();
      for (const unsigned char byte : read(held[at].pointer, held[at].bytes)) REQUIRE(byte == held[at].value);
      allocator.deallocate(held[at].pointer, held[at].bytes);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      if (random() % 10 == 0) allocator.trim();
    }
    const std::size_t bytes = std::size_t{1} << (random() % 23);
    held.push_back({allocator.allocate(bytes), bytes, i});
    CHECK_CUDA(cudaMemsetAsync(held.back().pointer, i, bytes, cuda::current_stream(0)));
  }
  for (const Held& block : held) {
    for (const unsigned char byte : read(block.pointer, block.bytes)) REQUIRE(byte == block.value);
    allocator.deallocate(block.pointer, block.bytes);
  }
  CHECK(allocator.stats().live_bytes == 0);
  allocator.trim();
  CHECK(allocator.stats().cached_bytes == 0);
}

TEST_CASE("streams: a block goes to another one only after its first one's work") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::CachingAllocator allocator(0);
  allocator.set_limit(64 * kMiB);
  cuda::Stream other(0);
  for (int round = 0; round < 2; ++round) {
    void* first = allocator.allocate(60 * kMiB);
    const Delay delay(cuda::current_stream(0));
    CHECK_CUDA(cudaMemsetAsync(first, 1, 60 * kMiB, cuda::current_stream(0)));
    allocator.deallocate(first, 60 * kMiB);
    const cuda::StreamGuard guard(other);
    void* second = allocator.allocate(60 * kMiB);  // only memory of the other stream is left
    CHECK_CUDA(cudaMemsetAsync(second, 2, 60 * kMiB, other.get()));
    CHECK_CUDA(cudaDeviceSynchronize());
    const auto bytes = read(static_cast<char*>(second) + 59 * kMiB, kMiB);
    REQUIRE(std::count(bytes.begin(), bytes.end(), 2) == static_cast<std::ptrdiff_t>(kMiB));
    allocator.deallocate(second, 60 * kMiB);
  }
  CHECK(allocator.pool_stats().borrowed > 0);
}

TEST_CASE("no memory: the text has the numbers, and the allocator continues") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::CachingAllocator allocator(0);
  void* kept = allocator.allocate(3 * kMiB);
  allocator.deallocate(allocator.allocate(5 * kMiB), 5 * kMiB);
  std::string text;
  try {
    (void)allocator.allocate(std::size_t{1} << 50U);
  } catch (const pp::OutOfMemory& error) {
    text = error.what();
  }
  const std::string start = "cuda:0: out of memory: asked 1125899906842624 bytes, live 3145728, cached 1048576, free ";
  CHECK(text.substr(0, start.size()) == start);
  CHECK(text.find(", total ") != std::string::npos);
  allocator.set_limit(8 * kMiB);
  CHECK_THROWS_AS((void)allocator.allocate(8 * kMiB), pp::OutOfMemory);
  void* more = allocator.allocate(4 * kMiB);
  CHECK(allocator.stats().live_bytes == 7 * kMiB);
  allocator.deallocate(more, 4 * kMiB);
  allocator.set_failure_hook([](std::size_t) { return true; });
  CHECK_THROWS_AS((void)allocator.allocate(1), pp::OutOfMemory);
  allocator.set_failure_hook({});
  allocator.deallocate(kept, 3 * kMiB);
  CHECK(cuda::leak_report(allocator, 0).empty());
}

TEST_CASE("leaks are reported by number") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::CachingAllocator allocator(0);
  void* a = allocator.allocate(600);
  void* b = allocator.allocate(1);
  CHECK(cuda::leak_report(allocator, 0) == "2 blocks, 1536 bytes live: #1 1024 bytes, #2 512 bytes");
  CHECK(cuda::leak_report(allocator, 1) == "1 block, 512 bytes live: #2 512 bytes");
  allocator.deallocate(a, 600);
  allocator.deallocate(b, 1);
}

TEST_CASE("guards: an overrun is reported with its block, freed and new memory are NaN") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::CachingAllocator under(0);
  cuda::GuardedAllocator allocator(0, under);
  char* block = static_cast<char*>(allocator.allocate(1000));
  for (const unsigned char byte : read(block, 1000)) REQUIRE(byte == 0xFF);
  CHECK_CUDA(cudaMemsetAsync(block, 0, 1000, cuda::current_stream(0)));
  allocator.deallocate(block, 1000);
  for (const unsigned char byte : read(block, 1000)) REQUIRE(byte == 0xFF);  // the pool keeps the block mapped
  block = static_cast<char*>(allocator.allocate(1000));                      // no overrun of the first was found
  SUBCASE("after") {
    CHECK_CUDA(cudaMemsetAsync(block, 0, 1003, cuda::current_stream(0)));
    allocator.deallocate(block, 1000);
    CHECK_THROWS_WITH_AS((void)allocator.allocate(1),
                         "cuda:0: memory overrun: 3 of the 512 bytes after a block of 1000 bytes were written",
                         pp::DeviceError);
  }
  SUBCASE("before") {
    CHECK_CUDA(cudaMemsetAsync(block - 1, 0, 1, cuda::current_stream(0)));
    allocator.deallocate(block, 1000);
    CHECK_THROWS_WITH_AS((void)allocator.allocate(1),
                         "cuda:0: memory overrun: 1 of the 512 bytes before a block of 1000 bytes were written",
                         pp::DeviceError);
  }
  allocator.deallocate(allocator.allocate(1), 1);  // reported only once
  CHECK(under.stats().live_blocks == 0);
}

TEST_CASE("guards: a free waits for every stream before it looks and writes") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cuda::Stream other(0);
  cuda::CachingAllocator under(0);
  cuda::GuardedAllocator allocator(0, under);
  char* block = static_cast<char*>(allocator.allocate(1000));
  SUBCASE("for what another stream reads of the block") {
    void* seen = allocator.allocate(1000);
    CHECK_CUDA(cudaMemsetAsync(block, 7, 1000, cuda::current_stream(0)));
    cuda::wait_for(cuda::current_stream(0));
    const Delay delay(other.get());
    CHECK_CUDA(cudaMemcpyAsync(seen, block, 1000, cudaMemcpyDeviceToDevice, other.get()));
    allocator.record_stream(block, reinterpret_cast<cuda::StreamId>(other.get()));
    allocator.deallocate(block, 1000);
    other.synchronize();
    for (const unsigned char byte : read(seen, 1000)) REQUIRE(byte == 7);
    allocator.deallocate(seen, 1000);
  }
  SUBCASE("for an overrun on another stream") {
    cuda::wait_for(cuda::current_stream(0));
    const Delay delay(other.get());
    CHECK_CUDA(cudaMemsetAsync(block, 0, 1003, other.get()));
    allocator.deallocate(block, 1000);
    CHECK_THROWS_AS((void)allocator.allocate(1), pp::DeviceError);
  }
  SUBCASE("for the guards of a block that was allotted on another stream") {
    allocator.deallocate(block, 1000);
    const Delay delay(other.get());
    {
      const cuda::StreamGuard guard(other);
      block = static_cast<char*>(allocator.allocate(1000));
    }
    allocator.deallocate(block, 1000);
    allocator.deallocate(allocator.allocate(1), 1);  // no overrun is reported
  }
  CHECK(under.stats().live_blocks == 0);
}

TEST_CASE("guards: those that a graph would write are not missed where it never ran") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::CachingAllocator under(0);
  cuda::GuardedAllocator allocator(0, under);
  void* block = nullptr;
  const cuda::Graph graph = cuda::capture([&] { block = allocator.allocate(1000); });
  allocator.deallocate(block, 1000);
  allocator.deallocate(allocator.allocate(1), 1);  // no overrun is reported
  CHECK(under.stats().live_blocks == 0);
}

TEST_CASE("plain cudaMalloc counts, limits and fails alike") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::PlainAllocator allocator(0);
  void* a = allocator.allocate(1000);
  CHECK(allocator.stats().live_bytes == 1000);
  CHECK(allocator.stats().cached_bytes == 0);
  allocator.set_limit(2000);
  CHECK_THROWS_AS((void)allocator.allocate(1001), pp::OutOfMemory);
  CHECK(cuda::leak_report(allocator, 0) == "1 block, 1000 bytes live: #1 1000 bytes");
  allocator.deallocate(a, 1000);
  CHECK(allocator.stats().live_blocks == 0);
  CHECK(allocator.stats().peak_bytes == 1000);
}

TEST_CASE("plain cudaMalloc: what a graph uses stays until the graph is gone, freed during the capture or after it") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::PlainAllocator allocator(0);
  const auto is_there = [](void* pointer) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
  };
  const std::uint64_t graph = cuda::new_graph_id();
  void* before = allocator.allocate(1000);
  allocator.begin_capture(graph);
  void* during = allocator.allocate(1000);
  void* kept = allocator.allocate(1000);
  void* longer = allocator.allocate(1000);
  allocator.deallocate(before, 1000);
  allocator.deallocate(during, 1000);
  allocator.end_capture(graph);
  allocator.deallocate(kept, 1000);
  CHECK(allocator.stats().live_blocks == 1);
  for (void* pointer : {before, during, kept, longer}) CHECK(is_there(pointer));
  allocator.release_graph(graph);
  for (void* pointer : {before, during, kept}) CHECK_FALSE(is_there(pointer));
  CHECK(is_there(longer));
  allocator.deallocate(longer, 1000);
  CHECK_FALSE(is_there(longer));
}

TEST_CASE("many threads and streams on the library's own allocator leak nothing") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::DeviceAllocator& allocator = cuda::allocator(0);
  const pp::MemoryStats before = allocator.stats();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const cuda::Stream stream(0);
      const cuda::StreamGuard guard(stream);
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 300; ++i) {
        const std::size_t bytes = 1 + random() % (2 * kMiB);
        const cuda::Buffer buffer(bytes, 0);
        CHECK_CUDA(cudaMemsetAsync(buffer.as<void>(), t, bytes, stream.get()));
        if (i % 20 == 0 && read(buffer.as<char>() + bytes - 1, 1)[0] != t) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(allocator.stats().live_bytes == before.live_bytes);
  CHECK(cuda::leak_report(allocator, before.allocations).empty());
}
