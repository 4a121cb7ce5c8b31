#include "distributed/failure.hpp"

#include <doctest/doctest.h>
#include <poll.h>

#include <chrono>
#include <thread>

#include "distributed/distributed_error.hpp"

using namespace polyphase::distributed;
using std::chrono::milliseconds;

TEST_CASE("failure: the first text counts, for all threads") {
  Failure failure;
  failure.check();
  pollfd polled{failure.descriptor(), POLLIN, 0};
  CHECK(::poll(&polled, 1, 0) == 0);
  failure.set("rank 1 is dead", false);
  failure.set("rank 2 is dead", true);
  CHECK(failure.is_set());
  CHECK(::poll(&polled, 1, 0) == 1);
  CHECK_THROWS_WITH_AS(failure.check(), "rank 1 is dead", DistributedError);
  CHECK_FALSE(failure.should_print());
}

TEST_CASE("failure: an effect waits for its cause, and is the error where there is none") {
  Failure with_cause, without;
  std::thread watchdog([&] {
    std::this_thread::sleep_for(milliseconds(20));
    with_cause.set("rank 1 is dead", true);
  });
  CHECK_THROWS_WITH_AS(with_cause.raise("the connection was closed", milliseconds(5000)), "rank 1 is dead", DistributedError);
  watchdog.join();
  without.add_note("rank 1 has left");
  CHECK_THROWS_WITH_AS(without.raise("the connection was closed", milliseconds(1)),
                       "the connection was closed; rank 1 has left", DistributedError);
}
