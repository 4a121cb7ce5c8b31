#include "cuda/memory/workspace.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "tensor/error.hpp"

using polyphase::Error;
using polyphase::OutOfMemory;
using polyphase::cuda::Workspace;

namespace {

alignas(Workspace::kAlignment) char memory[4 * Workspace::kAlignment];

}  // namespace

TEST_CASE("parts are aligned and follow one another") {
  Workspace workspace(0, memory, sizeof memory);
  CHECK(Workspace::current() == &workspace);
  CHECK(workspace.take(0, 0) == nullptr);
  CHECK(workspace.take(0, 1) == memory);
  CHECK(workspace.take(0, 257) == memory + 256);
  CHECK(workspace.take(0, 256) == memory + 768);
  CHECK(workspace.most_bytes() == 1024);
}

TEST_CASE("the last part is taken again, and all once all are released") {
  Workspace workspace(0, memory, sizeof memory);
  void* const first = workspace.take(0, 100);
  void* const second = workspace.take(0, 300);
  workspace.release(second, 300);
  CHECK(workspace.take(0, 10) == second);
  workspace.release(first, 100);  // not the last one: stays in use
  CHECK(workspace.take(0, 10) == memory + 512);
  workspace.release(memory + 256, 10);
  workspace.release(memory + 512, 10);
  CHECK(workspace.take(0, 1024) == memory);
  workspace.release(nullptr, 0);
  CHECK(workspace.most_bytes() == 1024);
}

TEST_CASE("a workspace that is too small says how much it needs, and stays usable") {
  Workspace workspace(3, memory, 512);
  void* const part = workspace.take(3, 256);
  CHECK_THROWS_WITH_AS((void)workspace.take(3, 300), "cuda:3: expected a workspace of at least 768 bytes, got 512",
                       OutOfMemory);
  CHECK_THROWS_AS((void)workspace.take(3, SIZE_MAX / 2), OutOfMemory);
  workspace.release(part, 256);
  CHECK(workspace.take(3, 512) == memory);
}

TEST_CASE("another device and memory that is not aligned are errors") {
  {
    Workspace workspace(1, memory, sizeof memory);
    CHECK_THROWS_WITH_AS((void)workspace.take(0, 8), "workspace: expected work on cuda:1, got cuda:0", Error);
  }
  CHECK_THROWS_AS(Workspace(0, memory + 8, 256), Error);
  CHECK(Workspace::current() == nullptr);
}

TEST_CASE("a workspace without memory counts, and the one around it comes back") {
  Workspace outer(0, memory, sizeof memory);
  {
    Workspace counting(0);
    CHECK(counting.only_counts());
    CHECK(Workspace::current() == &counting);
    counting.count(0, memory, 1 << 20);
    counting.count(0, memory + 1, 1);
    CHECK(counting.uncount(memory + 1, 1));
    CHECK(counting.uncount(memory, 1 << 20));
    CHECK_FALSE(counting.uncount(memory, 1 << 20));
    CHECK_FALSE(counting.contains(memory));
    CHECK(counting.most_bytes() == (1 << 20) + 256);
  }
  CHECK(Workspace::current() == &outer);
  CHECK_FALSE(outer.only_counts());
  CHECK(outer.contains(memory));
  CHECK(outer.contains(memory + sizeof memory - 1));
  CHECK_FALSE(outer.contains(memory + sizeof memory));
}
