#include "cuda/memory/virtual_memory.hpp"

#include <doctest/doctest.h>

#include "cuda/delay.hpp"
#include "support/skip.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;
using polyphase::testing::Delay;

TEST_CASE("without a driver it is not supported, and asking throws nothing") {
  if (cuda::device_count() > 0) SKIP_TEST("there is a CUDA device");
  CHECK_FALSE(cuda::VirtualMemory::supported(0));
}

TEST_CASE("adjacent mapped pieces are one range; unmapped memory is returned") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  REQUIRE(cuda::VirtualMemory::supported(0));
  cuda::VirtualMemory memory(0);
  const std::size_t unit = memory.granularity();
  const cuda::Address space = memory.reserve(16 * unit);
  REQUIRE(space != 0);
  REQUIRE(memory.map(space, 2 * unit));
  REQUIRE(memory.map(space + 2 * unit, unit));
  CHECK_CUDA(cudaMemset(reinterpret_cast<void*>(space), 5, 3 * unit));
  unsigned char last = 0;
  CHECK_CUDA(cudaMemcpy(&last, reinterpret_cast<void*>(space + 3 * unit - 1), 1, cudaMemcpyDeviceToHost));
  CHECK(last == 5);
  memory.unmap(space + 2 * unit, unit);
  REQUIRE(memory.map(space + 2 * unit, 4 * unit));  // the same addresses again
  memory.unmap(space, 2 * unit);
  memory.unmap(space + 2 * unit, 4 * unit);
  memory.release(space, 16 * unit);
}

TEST_CASE("moved memory is the same memory at another address, while the old one is still in use") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::VirtualMemory memory(0);
  const std::size_t unit = memory.granularity();
  const cuda::Address space = memory.reserve(8 * unit);
  REQUIRE(space != 0);
  REQUIRE(memory.map(space, unit));
  REQUIRE(memory.map(space + unit, unit));
  const Delay delay(cuda::current_stream(0));
  CHECK_CUDA(cudaMemsetAsync(reinterpret_cast<void*>(space), 3, unit, cuda::current_stream(0)));
  REQUIRE(memory.move(space, space + 4 * unit, unit));  // the fill has not begun
  unsigned char first = 0;
  CHECK_CUDA(
      cudaMemcpyAsync(&first, reinterpret_cast<void*>(space + 4 * unit), 1, cudaMemcpyDeviceToHost, cuda::current_stream(0)));
  cuda::wait_for(cuda::current_stream(0));
  CHECK(first == 3);
  memory.unmap(space, unit);
  CHECK_CUDA(cudaMemset(reinterpret_cast<void*>(space + 4 * unit), 9, unit));
  REQUIRE(memory.move(space + 4 * unit, space, unit));  // and back to the old address
  CHECK_CUDA(cudaMemcpy(&first, reinterpret_cast<void*>(space + unit - 1), 1, cudaMemcpyDeviceToHost));
  CHECK(first == 9);
  for (const std::size_t place : {0, 1, 4}) memory.unmap(space + place * unit, unit);
  memory.release(space, 8 * unit);
}

// The amount of free memory is no measure, since other processes allocate and free memory at the same time.
TEST_CASE("unmapped memory can be had again, more often than there is memory") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::VirtualMemory memory(0);
  const std::size_t eighth = cuda::properties(0).total_bytes / 8 / memory.granularity() * memory.granularity();
  const cuda::Address space = memory.reserve(eighth);
  REQUIRE(space != 0);
  for (int turn = 0; turn < 12; ++turn) {
    REQUIRE(memory.map(space, eighth));
    memory.unmap(space, eighth);
  }
  memory.release(space, eighth);
}

TEST_CASE("more memory than there is, is refused without an error state") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::VirtualMemory memory(0);
  const std::size_t unit = memory.granularity();
  const std::size_t much = (cuda::properties(0).total_bytes / unit + 1) * unit;
  const cuda::Address space = memory.reserve(much);
  REQUIRE(space != 0);
  CHECK_FALSE(memory.map(space, much));
  CHECK(memory.map(space, unit));
  memory.unmap(space, unit);
  memory.release(space, much);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("events follow their stream") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::VirtualMemory memory(0);
  const cuda::Stream stream(0), other(0);
  const auto id = [](const cuda::Stream& s) { return reinterpret_cast<cuda::StreamId>(s.get()); };
  const Delay first(stream.get());
  const cuda::EventId event = memory.record(id(stream));
  const bool done = memory.done(event);
  CHECK((!done || first.over()));
  if (!done) memory.wait(event);
  CHECK(first.over());
  const Delay second(stream.get());
  const cuda::EventId again = memory.record(id(stream));
  memory.synchronize(id(stream));
  CHECK(second.over());
  CHECK(memory.done(again));
  const Delay third(stream.get());
  memory.order(id(stream), id(other));
  memory.synchronize(id(other));
  CHECK(third.over());
}
