#include "tensor/storage.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "device/backend.hpp"

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

TEST_CASE("no write of several threads is lost") {
  const Storage storage(8, Device::cpu());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&storage] {
      for (int i = 0; i < 500'000; ++i) storage.bump_version();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(storage.version() == 2'000'000);
}

TEST_CASE("a failed allocation leaks nothing") {
  pp::Allocator& allocator = pp::backend_of(Device::cpu()).allocator();
  const std::size_t before = allocator.stats().live_bytes;
  CHECK_THROWS_AS(Storage(std::size_t{1} << 60, Device::cpu()), pp::OutOfMemory);
  CHECK(allocator.stats().live_bytes == before);
}

namespace {

struct Counting final : pp::StorageCompanion {
  Counting() { ++made; }
  ~Counting() override { ++gone; }
  static std::unique_ptr<pp::StorageCompanion> make() { return std::make_unique<Counting>(); }
  static int made, gone;
};
int Counting::made = 0, Counting::gone = 0;

}  // namespace

TEST_CASE("a companion is made once and goes with the block; none where others may write") {
  {
    const Storage first(64, Device::cpu());
    const Storage second = first;
    pp::StorageCompanion* companion = first.companion(&Counting::make);
    CHECK(companion != nullptr);
    CHECK(second.companion(&Counting::make) == companion);
    CHECK(Counting::made == 1);
    first.mark_exported();
    CHECK(second.companion(&Counting::make) == nullptr);
    CHECK(Counting::gone == 0);
  }
  CHECK(Counting::gone == 1);
  std::array<float, 4> there{};
  CHECK(Storage(there.data(), sizeof(there), Device::cpu(), {}).companion(&Counting::make) == nullptr);
  CHECK(Storage().companion(&Counting::make) == nullptr);
  CHECK(Counting::made == 1);
}

TEST_CASE("writes are reported to the thread's observer, and a weak handle keeps nothing alive") {
  struct Last final : pp::WriteObserver {
    const void* data = nullptr;
    int count = 0;
    void written(const Storage& storage) noexcept override { data = storage.data(), ++count; }
  } last;
  Storage storage(64, Device::cpu());
  CHECK(pp::WriteObserver::exchange(&last) == nullptr);
  storage.bump_version();
  CHECK(pp::WriteObserver::exchange(nullptr) == &last);
  storage.bump_version();
  CHECK(last.count == 1);
  CHECK(last.data == storage.data());
  const pp::WeakStorage weak(storage);
  weak.bump_version();
  CHECK(storage.version() == 3);
  CHECK(weak.is_of(storage));
  storage = Storage();
  weak.bump_version();
  CHECK_FALSE(weak.is_of(Storage(8, Device::cpu())));
}
