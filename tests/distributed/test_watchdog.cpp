#include "distributed/watchdog.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "support/ranks.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

void sleep_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Steps of a job: a sum of a few buckets. Ends after `steps`.
void train(Group& group, int steps, const std::function<void(int step)>& before = {}) {
  const Tensor values = Tensor::ones({100'000});
  for (int step = 0; step < steps; ++step) {
    if (before) before(step);
    for (int bucket = 0; bucket < 3; ++bucket)
      group.communicator().all_reduce(values, Combine::average, concat("bucket ", bucket)).wait();
    if (!group.end_step()) return;
  }
}

// Tells a test that the ranks have met: on a busy machine they take long to start.
class Meeting {
 public:
  void enter(int rank) const { std::ofstream(mark(rank)).flush(); }
  void wait_for(int world) const {
    for (int rank = 0; rank < world; ++rank)
      for (int turn = 0; turn < 2000 && !std::filesystem::exists(mark(rank)); ++turn) sleep_ms(10);
  }

 private:
  [[nodiscard]] std::string mark(int rank) const { return folder_.file(concat("met", rank)); }
  TemporaryDirectory folder_;
};

constexpr int kForEver = 1'000'000;

// All ranks but the guilty one ended with code 1 in time, and exactly the first of them printed.
void check_all_ended(const std::vector<RankResult>& results, int guilty, double within_s) {
  const std::size_t printer = guilty == 0 ? 1 : 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (static_cast<int>(i) == guilty) continue;
    CHECK(results[i].code == 1);
    CHECK(results[i].seconds < within_s);
    CHECK(results[i].text.empty() == (i != printer));
  }
}

}  // namespace

TEST_CASE("watchdog: a killed rank at a random moment ends all others with its name") {
  const char* given = std::getenv("POLYPHASE_KILLS");  // 50 by hand
  const int kills = given != nullptr ? std::atoi(given) : 5;
  std::mt19937 random(7);
  for (int i = 0; i < kills; ++i) {
    const int world = 2 + i % 3;
    const int guilty = static_cast<int>(random() % static_cast<unsigned>(world));
    const Meeting meeting;
    Job job(world, [&](int rank) {
      Group group = init();
      meeting.enter(rank);
      train(group, kForEver);
    });
    meeting.wait_for(world);
    sleep_ms(static_cast<int>(random() % 300));
    job.signal(guilty, SIGKILL);
    const std::vector<RankResult> results = job.wait();
    CHECK(results[static_cast<std::size_t>(guilty)].code == 128 + SIGKILL);
    check_all_ended(results, guilty, 4);
    const std::string& text = results[guilty == 0 ? 1 : 0].text;
    CAPTURE(text);
    CHECK(contains(text, concat("rank ", guilty, " on ", host_name(), " ended without a word at step ")));
    CHECK((contains(text, "bucket ") || contains(text, "between operations")));
  }
}

TEST_CASE("watchdog: a stopped rank is named by those that wait for it, and ends when it goes on") {
  for (const int guilty : {0, 1, 2}) {
    const Meeting meeting;
    Job job(3, [&](int rank) {
      Group group = init();
      meeting.enter(rank);
      train(group, kForEver);
    });
    meeting.wait_for(3);
    sleep_ms(200);
    job.signal(guilty, SIGSTOP);
    const std::vector<RankResult> results = job.wait(guilty);
    check_all_ended(results, guilty, 6);
    CHECK(
        contains(results[guilty == 0 ? 1 : 0].text, concat("rank ", guilty, " on ", host_name(), " has not answered for 2 s")));
    job.signal(guilty, SIGCONT);
    CHECK(job.wait()[static_cast<std::size_t>(guilty)].code == 1);
  }
}

TEST_CASE("watchdog: a rank whose main thread hangs is ended too") {
  for (const int guilty : {0, 1}) {
    Job job(2, [=](int rank) {
      Group group = init({.timeout = std::chrono::milliseconds(500)});
      train(group, kForEver, [&](int step) {
        if (rank == guilty && step == 3) sleep_ms(60'000);
      });
    });
    const std::vector<RankResult> results = job.wait();
    for (const RankResult& result : results) {
      CHECK(result.code == 1);
      CHECK(result.seconds < 4);
      CAPTURE(result.text);
      CHECK(contains(result.text, concat("rank ", guilty, " on ", host_name(), " is hung at step 3")));
      CHECK(contains(result.text, "it has not reached all_reduce \"bucket 0\" (operation 9)"));
    }
  }
}

TEST_CASE("watchdog: a slow rank is waited for") {
  Job job(2, [](int rank) {
    Group group = init({.timeout = std::chrono::milliseconds(1000)});
    train(group, 5, [&](int) { sleep_ms(rank == 1 ? 300 : 0); });
  });
  for (const RankResult& result : job.wait()) CHECK(result.code == 0);
}

TEST_CASE("watchdog: a rank that throws ends the others") {
  Job job(3, [](int rank) {
    Group group = init();
    train(group, kForEver, [&](int step) {
      if (rank == 2 && step == 4) throw Error("no sound in the folder");
    });
  });
  const std::vector<RankResult> results = job.wait();
  for (const RankResult& result : results) CHECK(result.code == 1);
  CHECK(results[2].text == "no sound in the folder\n");
  CHECK(contains(results[0].text, concat("rank 2 on ", host_name(), " ended with an error of its own at step 4")));
  CHECK(results[1].text.empty());
}

TEST_CASE("watchdog: a rank that leaves early is named") {
  Job job(2, [](int rank) {
    Group group = init();
    train(group, rank == 1 ? 3 : kForEver);
  });
  const std::vector<RankResult> results = job.wait();
  CHECK(results[1].code == 0);
  CHECK(results[0].code == 1);
  CAPTURE(results[0].text);
  CHECK(contains(results[0].text, concat("rank 1 on ", host_name(), " has left")));
}

TEST_CASE("watchdog: fail() ends all ranks with its text") {
  Job job(3, [](int rank) {
    Group group = init();
    train(group, kForEver, [&](int step) {
      if (rank == 1 && step == 2) group.fail("the file of weights is another one");
    });
  });
  const std::vector<RankResult> results = job.wait();
  const std::string text = concat("rank 1 on ", host_name(), ": the file of weights is another one (step 2)\n");
  for (const RankResult& result : results) CHECK(result.code == 1);
  CHECK(results[0].text == text);
  CHECK(results[1].text == text);
  CHECK(results[2].text.empty());
}

TEST_CASE("watchdog: after SIGTERM to one rank all leave after the same step") {
  for (const int told : {0, 1}) {
    Job job(3, [](int rank) {
      Group group = init();
      train(group, kForEver, [&](int) { sleep_ms(rank); });
      std::fprintf(stderr, "left after step %d\n", static_cast<int>(group.step()));
    });
    sleep_ms(300);
    job.signal(told, SIGTERM);
    const std::vector<RankResult> results = job.wait();
    for (const RankResult& result : results) {
      CHECK(result.code == 0);
      CHECK(contains(result.text, "left after step "));
      CHECK(result.text == results[0].text);
      CHECK(result.seconds < 3);
    }
  }
}
