#include "cuda/memory/block_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/memory/fake_memory.hpp"
#include "support/grouping_locale.hpp"

namespace {

using polyphase::cuda::Address;
using polyphase::cuda::BlockPool;
using polyphase::cuda::StreamId;
using polyphase::testing::FakeMemory;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr StreamId kA = 1, kB = 2, kC = 3;

Address address(void* pointer) { return reinterpret_cast<Address>(pointer); }

}  // namespace

TEST_CASE("blocks are rounded to 512 bytes, split, used again and joined") {
  FakeMemory memory(64 * kMiB);
  BlockPool pool(memory);
  void* a = pool.allocate(1, kA);
  void* b = pool.allocate(513, kA);
  void* c = pool.allocate(512, kA);
  CHECK(address(b) == address(a) + 512);
  CHECK(address(c) == address(b) + 1024);
  CHECK(pool.stats().live_bytes == 2048);
  CHECK(pool.stats().live_blocks == 3);
  CHECK(pool.stats().cached_bytes == 2 * kMiB - 2048);
  CHECK(memory.mapped() == 2 * kMiB);

  pool.deallocate(b, kA);
  CHECK(pool.allocate(1000, kA) == b);  // a block of the same size is reused immediately
  pool.deallocate(b, kA);
  pool.deallocate(a, kA);
  CHECK(pool.allocate(1536, kA) == a);  // a and b merged
  pool.deallocate(c, kA);
  pool.deallocate(a, kA);
  void* all = pool.allocate(kMiB, kA);
  CHECK(all == a);
  CHECK(memory.mapped() == 2 * kMiB);
  CHECK(pool.stats().peak_bytes == kMiB);
  CHECK(pool.stats().allocations == 6);
  pool.deallocate(all, kA);
  CHECK(pool.stats().live_bytes == 0);
  pool.trim();
  CHECK(memory.mapped() == 0);
  CHECK(memory.reserved() == 0);
  CHECK(pool.stats().cached_bytes == 0);
  CHECK(memory.faults == 0);
}

TEST_CASE("the smallest free block that holds a request is the one that is split") {
  FakeMemory memory(256 * kMiB);
  BlockPool pool(memory);
  const std::size_t sizes[] = {24 * kMiB, 8 * kMiB, 16 * kMiB};
  std::vector<void*> blocks, walls;
  for (const std::size_t size : sizes) {
    blocks.push_back(pool.allocate(size, kA));
    walls.push_back(pool.allocate(2 * kMiB, kA));  // prevents the free blocks from merging
  }
  for (void* block : blocks) pool.deallocate(block, kA);
  CHECK(pool.allocate(7 * kMiB, kA) == blocks[1]);
  CHECK(pool.allocate(10 * kMiB, kA) == blocks[2]);
  CHECK(pool.allocate(20 * kMiB, kA) == blocks[0]);
}

TEST_CASE("growth joins the free memory at the end, and free memory between live blocks serves any request") {
  FakeMemory memory(40 * kMiB);
  BlockPool pool(memory);
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(pool.allocate(4 * kMiB, kA));
  CHECK(memory.mapped() == 40 * kMiB);
  pool.deallocate(blocks[9], kA);
  pool.trim();
  void* grown = pool.allocate(3 * kMiB, kA);
  pool.deallocate(grown, kA);
  CHECK(pool.allocate(4 * kMiB, kA) == grown);  // 4 MiB at the address of the block that grew
  CHECK(memory.mapped() == 40 * kMiB);

  // Free every second block: 20 MiB in five pieces, none of 8 MiB or more.
  for (std::size_t i = 0; i < 10; i += 2) pool.deallocate(blocks[i], kA);
  void* large = pool.allocate(20 * kMiB, kA);
  CHECK(large != nullptr);
  CHECK(pool.pool_stats().trims == 0);
  CHECK(memory.moves == 10);
  CHECK(memory.mapped() == 40 * kMiB);
  CHECK(memory.use(kA, address(large), 20 * kMiB));
  CHECK(memory.faults == 0);
}

TEST_CASE("free memory is moved while work given before still uses it where it was, and for its stream alone") {
  FakeMemory memory(64 * kMiB);
  BlockPool pool(memory);
  void* first = pool.allocate(4 * kMiB, kA);
  void* kept = pool.allocate(4 * kMiB, kA);
  void* second = pool.allocate(4 * kMiB, kA);
  void* last = pool.allocate(4 * kMiB, kA);
  for (void* block : {first, second}) CHECK(memory.use(kA, address(block), 4 * kMiB));
  pool.deallocate(first, kA);
  pool.deallocate(second, kA);
  void* other = pool.allocate(8 * kMiB, kB);  // not from the first stream's blocks
  CHECK(memory.mapped() == 24 * kMiB);
  void* large = pool.allocate(8 * kMiB, kA);
  CHECK(memory.mapped() == 24 * kMiB);
  CHECK(memory.moves == 4);
  CHECK(pool.pool_stats().growths == 5);
  CHECK_FALSE(memory.use(kA, address(first), 512));  // the address is no longer mapped
  CHECK_FALSE(memory.use(kB, address(large), 8 * kMiB));
  CHECK(memory.use(kA, address(large), 8 * kMiB));
  CHECK(pool.stats().cached_bytes == 0);
  for (void* block : {kept, last, large}) pool.deallocate(block, kA);
  pool.deallocate(other, kB);
  pool.trim();
  CHECK(memory.mapped() == 0);
  CHECK(memory.reserved() == 0);
  CHECK(memory.faults == 0);
}

TEST_CASE("small and large blocks of a stream share its memory; another graph's do not") {
  FakeMemory memory(64 * kMiB);
  BlockPool pool(memory);
  std::vector<void*> small(8);
  for (void*& block : small) block = pool.allocate(kMiB / 2, kA);
  CHECK(memory.mapped() == 4 * kMiB);
  void* large = pool.allocate(2 * kMiB, kA);
  for (void* block : small) pool.deallocate(block, kA);
  void* graphs = pool.allocate(4 * kMiB, kA, 7);
  CHECK(memory.moves == 0);
  CHECK(pool.allocate(4 * kMiB, kA) != nullptr);
  CHECK(memory.moves == 2);
  CHECK(memory.mapped() == 10 * kMiB);
  pool.deallocate(graphs, kA, 7);
  pool.deallocate(large, kA);
  CHECK(memory.faults == 0);
}

TEST_CASE("where memory cannot be moved, or was moved too often, new memory is taken, and nothing is lost") {
  for (const int moves : {0, 1, 1000}) {
    FakeMemory memory(4096 * kMiB);
    memory.moves_left = moves;
    BlockPool pool(memory);
    // Two alternating patterns; each fits into the gaps of the other.
    std::size_t mapped = 0;
    for (int turn = 0; turn < 240; ++turn) {
      std::vector<void*> blocks;
      for (int i = 0; i < 12; ++i) blocks.push_back(pool.allocate((turn % 2 == 0 ? 4 : 6) * kMiB, kA));
      for (void* block : blocks) REQUIRE(memory.use(kA, address(block), 4 * kMiB));
      for (std::size_t i = 0; i < 12; i += 2) pool.deallocate(blocks[i], kA);
      blocks.push_back(pool.allocate(24 * kMiB, kA));
      REQUIRE(memory.use(kA, address(blocks.back()), 24 * kMiB));
      for (std::size_t i = 1; i < 13; i = i < 11 ? i + 2 : i + 1) pool.deallocate(blocks[i], kA);
      REQUIRE(pool.stats().live_blocks == 0);
      REQUIRE(pool.stats().cached_bytes == memory.mapped());
      if (turn == 200) mapped = memory.mapped();
    }
    CHECK(memory.mapped() == mapped);  // no growth any more
    CHECK(memory.moves <= moves);
    CHECK(memory.moves <= 3 * static_cast<int>(memory.mapped() / (2 * kMiB)));
    pool.trim();
    CHECK(memory.mapped() == 0);
    CHECK(memory.faults == 0);
  }
}

TEST_CASE("another stream gets a freed block only after an event") {
  FakeMemory memory(2 * kMiB);
  BlockPool pool(memory);
  void* a = pool.allocate(kMiB, kA);
  REQUIRE(memory.use(kA, address(a), kMiB));
  pool.deallocate(a, kA);
  void* b = pool.allocate(kMiB, kB);  // no memory is left to map, so the block is borrowed from A
  REQUIRE(b != nullptr);
  CHECK(pool.pool_stats().borrowed == 1);
  CHECK(memory.use(kB, address(b), kMiB));
  pool.deallocate(b, kB);  // its owner A must wait for B
  CHECK(pool.pool_stats().pending_bytes == kMiB);
  CHECK(pool.stats().live_bytes == 0);
  void* c = pool.allocate(2 * kMiB, kA);  // needs all memory, so the pool waits for B
  REQUIRE(c != nullptr);
  CHECK(memory.use(kA, address(c), 2 * kMiB));
  CHECK(pool.pool_stats().pending_bytes == 0);
  CHECK(memory.open_events() == 0);
  CHECK(memory.faults == 0);
}

TEST_CASE("record_stream and a free on another stream keep a block back until they are done") {
  for (const bool freed_there : {false, true}) {
    for (const bool done : {false, true}) {  // work is found finished, or waited for if nothing else is free
      CAPTURE(freed_there);
      CAPTURE(done);
      FakeMemory memory(2 * kMiB);
      BlockPool pool(memory);
      void* a = pool.allocate(4096, kA);
      void* rest[] = {pool.allocate(kMiB, kA), pool.allocate(kMiB - 4096, kA)};
      REQUIRE(rest[1] != nullptr);
      if (!freed_there) pool.record_stream(a, kB);
      REQUIRE(memory.use(kB, address(a), 4096));
      pool.deallocate(a, freed_there ? kB : kA);
      CHECK(pool.pool_stats().pending_bytes == 4096);
      CHECK(pool.stats().live_blocks == 2);
      if (done) memory.run_all(kB);
      CHECK(pool.allocate(4096, kA) == a);
      CHECK(memory.use(kA, address(a), 4096));
      CHECK(pool.pool_stats().pending_bytes == 0);
      CHECK(memory.open_events() == 0);
    }
  }
}

TEST_CASE("a block freed on a stream that is not ordered after its work is reused only when the work is done") {
  for (const bool borrowed : {false, true}) {
    CAPTURE(borrowed);
    FakeMemory memory(2 * kMiB);
    BlockPool pool(memory);
    if (borrowed) pool.deallocate(pool.allocate(2 * kMiB, kA), kA);
    void* a = pool.allocate(2 * kMiB, kB);
    CHECK(pool.pool_stats().borrowed == (borrowed ? 1 : 0));
    REQUIRE(memory.use(kB, address(a), 2 * kMiB));
    pool.deallocate(a, kA);
    memory.run_all(kA);
    void* next = pool.allocate(2 * kMiB, kA);
    REQUIRE(next != nullptr);
    CHECK(memory.use(kA, address(next), 2 * kMiB));
    CHECK(memory.faults == 0);
  }
}

TEST_CASE("a stream that goes is asked nothing any more, and leaves its memory to the others") {
  FakeMemory memory(4 * kMiB);
  BlockPool pool(memory);
  void* kept = pool.allocate(1024, kB);
  pool.deallocate(pool.allocate(2 * kMiB, kA), kA);
  void* used = pool.allocate(2 * kMiB, kB);  // from the first stream
  for (void* block : {kept, used}) REQUIRE(memory.use(kB, address(block), 1024));
  memory.run_all(kB);
  pool.retire_stream(kB);
  memory.destroy(kB);
  pool.deallocate(kept, kA);
  memory.run_all(kA);
  void* borrowed = pool.allocate(1024, kC);  // no memory is left
  CHECK(pool.pool_stats().borrowed == 2);
  for (void* block : {borrowed, used}) pool.deallocate(block, kA);
  SUBCASE("for good") {
    CHECK(pool.allocate(4 * kMiB, kA) != nullptr);  // all memory
  }
  SUBCASE("and a new one gets its handle") {
    memory.create(kB);
    void* fresh = pool.allocate(1024, kB);
    REQUIRE(memory.use(kB, address(fresh), 1024));
    pool.deallocate(fresh, kB);
    CHECK(pool.allocate(4 * kMiB, kA) != nullptr);  // waits for the new one
  }
  CHECK(memory.faults == 0);
}

TEST_CASE("a limit holds, can be raised, and lowering it returns what is cached") {
  FakeMemory memory(256 * kMiB);
  BlockPool pool(memory);
  pool.set_limit(8 * kMiB);
  void* a = pool.allocate(6 * kMiB, kA);
  CHECK(a != nullptr);
  CHECK(pool.allocate(4 * kMiB, kA) == nullptr);
  CHECK(pool.stats().live_bytes == 6 * kMiB);
  CHECK(pool.stats().allocations == 1);
  pool.set_limit(16 * kMiB);
  CHECK(pool.allocate(10 * kMiB, kA) != nullptr);
  pool.deallocate(a, kA);
  pool.set_limit(10 * kMiB);
  CHECK(memory.mapped() == 10 * kMiB);
  CHECK(pool.limit() == 10 * kMiB);
}

TEST_CASE("a graph's memory is its own until it is released; what it frees of others waits for the capture's end") {
  FakeMemory memory(64 * kMiB);
  BlockPool pool(memory);
  void* outside = pool.allocate(2048, kA);
  void* inside = pool.allocate(2048, kB, 7);
  void* scratch = pool.allocate(2048, kB, 7);
  pool.deallocate(scratch, kB, 7);
  CHECK(pool.allocate(2048, kB, 7) == scratch);
  pool.deallocate(scratch, kB, 7);
  pool.deallocate(outside, kB, 7);
  CHECK(pool.pool_stats().pending_bytes == 2048);
  CHECK(pool.allocate(2048, kA) != outside);
  pool.end_capture(7);
  CHECK(pool.allocate(2048, kA) == outside);

  CHECK(pool.allocate(2048, kB) != scratch);
  pool.trim();
  CHECK(memory.use(kB, address(scratch), 2048));  // a replay
  memory.run_all(kB);
  pool.deallocate(inside, kA);
  memory.run_all(kA);
  const std::size_t before = memory.mapped();
  pool.release_graph(7);
  pool.trim();
  CHECK(memory.mapped() == before - 2 * kMiB);
  CHECK(memory.faults == 0);
}

TEST_CASE("the hook takes memory away; the pool is as before") {
  FakeMemory memory(64 * kMiB);
  BlockPool pool(memory);
  void* a = pool.allocate(512, kA);
  pool.set_failure_hook([](std::size_t bytes) { return bytes > 1000; });
  CHECK(pool.allocate(2000, kA) == nullptr);
  CHECK(pool.allocate(999, kA) != nullptr);
  pool.set_failure_hook({});
  CHECK(pool.allocate(2000, kA) != nullptr);
  CHECK(pool.stats().live_blocks == 3);
  CHECK(pool.allocate(std::numeric_limits<std::size_t>::max(), kA) == nullptr);
  pool.deallocate(nullptr, kA);
  pool.deallocate(reinterpret_cast<void*>(address(a) + 256), kA);  // not a block's address
  pool.deallocate(a, kA);
  pool.deallocate(a, kA);  // twice
  CHECK(pool.stats().live_blocks == 2);
}

TEST_CASE("memory that runs out while a request grows is all returned") {
  FakeMemory memory(70 * kMiB);
  BlockPool pool(memory);
  CHECK(pool.allocate(80 * kMiB, kA) == nullptr);
  CHECK(memory.map_calls == 0);  // it takes nothing that others might need meanwhile
  memory.claims_more = true;
  CHECK(pool.allocate(80 * kMiB, kA) == nullptr);
  CHECK(memory.map_calls > 0);
  CHECK(memory.mapped() == 0);
  CHECK(memory.reserved() == 0);
  CHECK(pool.stats().cached_bytes == 0);
  memory.reserve_limit = 0;
  CHECK(pool.allocate(512, kA) == nullptr);
  memory.reserve_limit = std::size_t{1} << 40U;
  CHECK(pool.allocate(70 * kMiB, kA) != nullptr);
}

TEST_CASE("snapshot and leak report name the blocks") {
  FakeMemory memory(64 * kMiB);
  BlockPool pool(memory);
  void* a = pool.allocate(512, kA);
  const std::uint64_t mark = pool.stats().allocations;
  void* b = pool.allocate(3 * kMiB, kB);
  void* c = pool.allocate(700, kA);
  const auto live = pool.live_blocks(mark);
  REQUIRE(live.size() == 2);
  CHECK(live[0].address == address(b));
  CHECK(live[0].bytes == 3 * kMiB);
  CHECK(live[0].serial == 2);
  CHECK(live[1].address == address(c));
  pool.deallocate(a, kA);

  const auto json = nlohmann::json::parse([&] {
    const polyphase::testing::GroupingLocale locale;  // JSON needs numbers in the classic locale
    return pool.snapshot();
  }());
  CHECK(json["stats"]["live_bytes"] == 3 * kMiB + 1024);
  CHECK(json["stats"]["mapped_bytes"] == memory.mapped());
  REQUIRE(json["pools"].size() == 2);
  CHECK(json["pools"][1]["kind"] == "large");
  std::map<std::string, std::size_t> bytes;
  for (const auto& block : json["pools"][0]["arenas"][0]["blocks"]) bytes[block["state"]] += block["bytes"].get<std::size_t>();
  CHECK(bytes["live"] == 1024);
  CHECK(bytes["free"] == 2 * kMiB - 1024);
  CHECK(bytes["unmapped"] == (std::size_t{4} << 30U) - 2 * kMiB);
}

TEST_CASE("the allocations of a training run: exact counts, and at most 5 % more memory than was ever live") {
  // Recorded allocations: superres on the CPU, 16 windows of 8192 samples, set-up and three training steps; the network of
  // bench/training_step on a GPU, 32 x 512 samples, twenty steps, with input gradients by Algorithm::direct and by the tensor
  // cores, which need a converted source. Format: "+BYTES", and "-I" frees the I-th of those.
  std::string name;
  int runs = 1;
  SUBCASE("superres") {
    name = "superres_training.txt";
    runs = 3;
  }
  SUBCASE("vocoder") { name = "vocoder_training.txt"; }
  SUBCASE("vocoder, tensor cores") { name = "tensor_core_training.txt"; }
  std::ifstream file(CUDA_TEST_DATA "/" + name);
  REQUIRE(file.good());
  std::vector<std::string> events;
  for (std::string line; std::getline(file, line);) events.push_back(line);
  REQUIRE(events.size() > 400);
  FakeMemory memory(std::size_t{16} << 30U);
  BlockPool pool(memory, {.small_limit = std::size_t{512} << 10U});  // as in the device's allocator
  std::size_t mapped = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<std::pair<void*, std::size_t>> blocks;  // null: freed
    std::size_t live = 0, peak = 0, count = 0;
    const std::uint64_t before = pool.stats().allocations;
    pool.reset_peak();
    for (const std::string& event : events) {
      const std::size_t number = std::stoull(event.substr(1));
      if (event.front() == '+') {
        blocks.emplace_back(pool.allocate(number, kA), (number + 511) / 512 * 512);
        REQUIRE(blocks.back().first != nullptr);
        live += blocks.back().second;
        ++count;
      } else {
        pool.deallocate(std::exchange(blocks.at(number).first, nullptr), kA);
        live -= blocks[number].second;
        --count;
      }
      peak = std::max(peak, live);
      REQUIRE(pool.stats().live_bytes == live);
      REQUIRE(pool.stats().live_blocks == count);
      REQUIRE(pool.stats().peak_bytes == peak);
      REQUIRE(pool.stats().cached_bytes == memory.mapped() - live);
    }
    CHECK(pool.stats().allocations - before == blocks.size());
    CHECK(peak > 100 * kMiB);
    CHECK(static_cast<double>(pool.pool_stats().peak_mapped_bytes) <= 1.05 * static_cast<double>(peak));
    if (run > 0) CHECK(memory.mapped() == mapped);  // the same requests again map no new memory
    mapped = memory.mapped();
    for (const auto& [pointer, bytes] : blocks) pool.deallocate(pointer, kA);
    CHECK(pool.stats().live_bytes == 0);
  }
  pool.trim();
  CHECK(memory.mapped() == 0);
  CHECK(memory.faults == 0);
}
