#include "cuda/memory/staging.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "cuda/delay.hpp"
#include "cuda/elementwise/copy.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/pinned.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/skip.hpp"

namespace cuda = polyphase::cuda;
using polyphase::testing::Delay;

namespace {

std::vector<char> bytes_of(std::size_t count, int seed) {
  std::vector<char> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((i * 31 + static_cast<std::size_t>(seed)) % 127);
  return bytes;
}

/// Stages `bytes` from memory that is overwritten immediately afterwards, and reads them back.
bool arrives(std::size_t count, int seed, cudaStream_t stream) {
  const std::vector<char> sent = bytes_of(count, seed);
  std::vector<char> memory = sent, received(count);
  const cuda::Buffer device(count, 0);
  cuda::stage(device.as<void>(), memory.data(), count, stream, 0);
  std::fill(memory.begin(), memory.end(), char{-1});
  cuda::copy_to_host(received.data(), device.as<void>(), count, stream);
  return received == sent;
}

}  // namespace

TEST_CASE("every size arrives complete from memory that changes immediately: below, at and above a slot and all slots") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cudaStream_t stream = cuda::current_stream(0);
  constexpr std::size_t kAll = cuda::kStagingSlot * cuda::kStagingSlots;
  int seed = 0;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, cuda::kStagingSlot - 1, cuda::kStagingSlot,
                                  cuda::kStagingSlot + 1, 3 * cuda::kStagingSlot + 5, kAll, kAll + 1, 2 * kAll + 3}) {
    CAPTURE(count);
    CHECK(arrives(count, ++seed, stream));
  }
}

TEST_CASE("after long work a copy that fits the slots does not wait, and a slot is reused only after it was read") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cudaStream_t stream = cuda::current_stream(0);
  CHECK(arrives(cuda::kStagingSlot * cuda::kStagingSlots, 0, stream));  // all slots exist, none is in use
  constexpr std::size_t kTurns = 2;
  const cuda::Buffer target(kTurns * 4096 * cuda::kStagingSlots, 0);
  const Delay delay(stream);
  const std::uint64_t before = cuda::host_waits();
  for (std::size_t i = 0; i < kTurns * cuda::kStagingSlots; ++i) {
    if (i == cuda::kStagingSlots) CHECK(cuda::host_waits() == before);
    cuda::stage(target.as<char>() + 4096 * i, bytes_of(4096, static_cast<int>(i)).data(), 4096, stream, 0);
  }
  std::vector<char> received(target.bytes());
  cuda::copy_to_host(received.data(), target.as<void>(), received.size(), stream);
  for (std::size_t i = 0; i < kTurns * cuda::kStagingSlots; ++i)
    CHECK(std::memcmp(received.data() + 4096 * i, bytes_of(4096, static_cast<int>(i)).data(), 4096) == 0);
}

TEST_CASE("what is larger than all slots has left when the call returns, page-locked memory too") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cudaStream_t stream = cuda::current_stream(0);
  const std::size_t count = cuda::kStagingSlot * cuda::kStagingSlots + 1;
  const std::vector<char> sent = bytes_of(count, 3);
  const cuda::PinnedBuffer memory(count);  // for pageable memory the driver copies the data before it returns
  std::copy(sent.begin(), sent.end(), memory.as<char>());
  const cuda::Buffer target(count, 0);
  const Delay delay(stream);
  cuda::stage(target.as<void>(), memory.data(), count, stream, 0);
  std::fill_n(memory.as<char>(), count, char{-1});
  std::vector<char> received(count);
  cuda::copy_to_host(received.data(), target.as<void>(), count, stream);
  CHECK(received == sent);
}

TEST_CASE("threads with streams of their own share the slots") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < wrong.size(); ++id)
    threads.emplace_back([&, id] {
      const cuda::Stream stream(0);
      const cuda::StreamGuard guard(stream);
      for (int turn = 0; turn < 50; ++turn)
        wrong[id] += !arrives(1000 + 70000 * id + static_cast<std::size_t>(turn), turn, stream.get());
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(wrong.size(), 0));
}
