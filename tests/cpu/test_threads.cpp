#include "cpu/threads.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tensor/error.hpp"

using namespace polyphase;

TEST_CASE("every index once, in at most num_threads() ranges of at least the grain") {
  const int before = num_threads();
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    CHECK(num_threads() == threads);
    for (const std::int64_t count : {0, 1, 2, 5, 100, 101}) {
      for (const std::int64_t grain : {0, 1, 3, 1000}) {
        std::vector<int> visits(static_cast<std::size_t>(count), 0);
        std::mutex mutex;
        int ranges = 0;
        cpu::parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          const std::lock_guard lock(mutex);
          ++ranges;
          CHECK((end - begin >= grain || count < grain));
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        CHECK(ranges <= threads);
        for (const int visit : visits) CHECK(visit == 1);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("ranges really run on several threads") {
  const int before = num_threads();
  set_num_threads(3);
  std::set<std::thread::id> ids;
  std::mutex mutex;
  cpu::parallel_for(3, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  CHECK(ids.size() == 3);
  set_num_threads(before);
}

TEST_CASE("a forked child computes on its one thread") {
  const int before = num_threads();
  set_num_threads(2);
  std::atomic<int> visits = 0;
  const auto visit_all = [&] {
    cpu::parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) { visits += static_cast<int>(end - begin); });
  };
  visit_all();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    visit_all();
    _exit(visits);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 16);
  set_num_threads(before);
}

TEST_CASE("a nested call stays on its thread") {
  const int before = num_threads();
  set_num_threads(2);
  cpu::parallel_for(2, 1, [](std::int64_t, std::int64_t) {
    const auto outer = std::this_thread::get_id();
    cpu::parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) {
      CHECK(begin == 0);
      CHECK(end == 8);
      CHECK(std::this_thread::get_id() == outer);
    });
  });
  set_num_threads(before);
}

TEST_CASE("an exception leaves the parallel region") {
  const int before = num_threads();
  set_num_threads(2);
  CHECK_THROWS_WITH_AS(cpu::parallel_for(10, 1,
                                         [](std::int64_t begin, std::int64_t) {
                                           if (begin > 0) throw std::runtime_error("from the second range");
                                         }),
                       "from the second range", std::runtime_error);
  set_num_threads(before);
}

TEST_CASE("a count below one") {
  CHECK_THROWS_WITH_AS(set_num_threads(0), "set_num_threads: expected a count of at least 1, got 0", Error);
}
