#include "tensor/storage.hpp"

#include <doctest/doctest.h>

#include <array>

#include "tensor/backend.hpp"

namespace pp = polyphase;
using pp::Device;
using pp::Storage;

TEST_CASE("an empty handle") {
  const Storage storage;
  CHECK(storage.data() == nullptr);
  CHECK(storage.bytes() == 0);
  CHECK(storage.device() == Device::cpu());
  storage.bump_version();
  CHECK(storage.version() == 0);
}

TEST_CASE("memory goes back with the last handle") {
  pp::Allocator& allocator = pp::backend_of(Device::cpu()).allocator();
  const std::size_t before = allocator.stats().live_bytes;
  {
    Storage first(1024, Device::cpu());
    const Storage second = first;
    CHECK(allocator.stats().live_bytes == before + 1024);
    CHECK(second.shares_with(first));
    CHECK_FALSE(second.shares_with(Storage(8, Device::cpu())));
    first = Storage();
    CHECK(allocator.stats().live_bytes == before + 1024);
  }
  CHECK(allocator.stats().live_bytes == before);
}

TEST_CASE("no bytes, no memory") {
  const Storage storage(0, Device::cpu());
  CHECK(storage.data() == nullptr);
  CHECK(storage.bytes() == 0);
}

TEST_CASE("borrowed memory is released once, by its owner") {
  std::array<float, 4> values{};
  int released = 0;
  {
    const Storage storage(values.data(), sizeof values, Device::cpu(), [&released] { ++released; });
    const Storage copy = storage;
    CHECK(copy.data() == values.data());
    CHECK(released == 0);
  }
  CHECK(released == 1);
  { const Storage unowned(values.data(), sizeof values, Device::cpu(), {}); }
}

TEST_CASE("handles share the version") {
  const Storage storage(8, Device::cpu());
  const Storage copy = storage;
  copy.bump_version();
  CHECK(storage.version() == 1);
}

TEST_CASE("a failed allocation leaves nothing behind") {
  pp::Allocator& allocator = pp::backend_of(Device::cpu()).allocator();
  const std::size_t before = allocator.stats().live_bytes;
  CHECK_THROWS_AS(Storage(std::size_t{1} << 60, Device::cpu()), pp::OutOfMemory);
  CHECK(allocator.stats().live_bytes == before);
}
