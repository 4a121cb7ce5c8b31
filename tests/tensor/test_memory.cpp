#include "tensor/memory.hpp"

#include <doctest/doctest.h>

#include "tensor/error.hpp"
#include "tensor/tensor.hpp"

namespace pp = polyphase;

TEST_CASE("a tensor is counted while it lives, its peak until reset, its memory as cached until emptied") {
  pp::empty_cache();
  pp::reset_peak_memory();
  const pp::MemoryStats before = pp::memory_stats();
  CHECK(before.peak_bytes == before.live_bytes);
  constexpr std::int64_t count = 1 << 20;
  {
    const pp::Tensor x = pp::Tensor::empty({count});
    const pp::MemoryStats live = pp::memory_stats(pp::Device::cpu());
    CHECK(live.live_bytes >= before.live_bytes + count * sizeof(float));
    CHECK(live.live_blocks == before.live_blocks + 1);
    CHECK(live.allocations == before.allocations + 1);
  }
  const pp::MemoryStats after = pp::memory_stats();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.peak_bytes >= before.live_bytes + count * sizeof(float));
  CHECK(after.cached_bytes >= before.cached_bytes + count * sizeof(float));
  pp::empty_cache();
  CHECK(pp::memory_stats().cached_bytes == 0);
  pp::reset_peak_memory();
  CHECK(pp::memory_stats().peak_bytes == before.live_bytes);
}

TEST_CASE("a device that does not exist is refused by name") {
  CHECK_THROWS_WITH_AS((void)pp::memory_stats(pp::Device{pp::DeviceType::cpu, 3}),
                       "cpu:3: expected cpu, which is a single device", pp::DeviceError);
}
