#include "tensor/repeated_numbers.hpp"

#include <doctest/doctest.h>

#include <thread>

using polyphase::RepeatedNumbersGuard;

TEST_CASE("a guard counts for its scope and its thread") {
  CHECK_FALSE(RepeatedNumbersGuard::is_active());
  {
    const RepeatedNumbersGuard outer;
    {
      const RepeatedNumbersGuard inner;
      CHECK(RepeatedNumbersGuard::is_active());
    }
    CHECK(RepeatedNumbersGuard::is_active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = RepeatedNumbersGuard::is_active(); }).join();
    CHECK_FALSE(elsewhere);
  }
  CHECK_FALSE(RepeatedNumbersGuard::is_active());
}
