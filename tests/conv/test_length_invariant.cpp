#include "conv/length_invariant.hpp"

#include <doctest/doctest.h>

#include <thread>

using polyphase::LengthInvariantGuard;

TEST_CASE("a guard counts for its scope and its thread") {
  CHECK_FALSE(LengthInvariantGuard::is_active());
  {
    const LengthInvariantGuard outer;
    { const LengthInvariantGuard inner; }
    CHECK(LengthInvariantGuard::is_active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = LengthInvariantGuard::is_active(); }).join();
    CHECK_FALSE(elsewhere);
  }
  CHECK_FALSE(LengthInvariantGuard::is_active());
}
