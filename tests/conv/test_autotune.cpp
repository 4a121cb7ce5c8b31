#include "conv/autotune.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace polyphase;

TEST_CASE("off by default; guards nest and belong to their thread") {
  CHECK_FALSE(autotune_enabled());
  {
    const AutotuneGuard on(true);
    CHECK(autotune_enabled());
    {
      const AutotuneGuard off(false);
      CHECK_FALSE(autotune_enabled());
    }
    CHECK(autotune_enabled());
    std::thread([] { CHECK_FALSE(autotune_enabled()); }).join();
  }
  CHECK_FALSE(autotune_enabled());
}
