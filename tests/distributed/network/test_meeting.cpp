#include "distributed/network/meeting.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "distributed/distributed_error.hpp"
#include "support/ranks.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A port that nothing listens at now.
int free_port() { return Socket::listen("127.0.0.1", 0).port(); }

std::string local(int port) { return concat("127.0.0.1:", port); }

// Every rank adds 1; returns the sum.
double count_ranks(Group& group) {
  const Tensor one = Tensor::ones({1});
  group.communicator().all_reduce(one, Combine::sum, "count").wait();
  return one.item();
}

// What torchrun sets, with a port that it owns itself.
Place torchrun_place(int rank, int world, int port, const std::string& job) {
  return {.rank = rank,
          .world = world,
          .local_rank = rank,
          .launcher = "torchrun",
          .address = local(port),
          .derive_port = true,
          .job = job};
}

void check_all_fail(const std::vector<RankResult>& results, const std::string& text) {
  for (const RankResult& result : results) CHECK(result.code == 1);
  CAPTURE(results[0].text);
  CHECK(contains(results[0].text, text));
}

}  // namespace

TEST_CASE("meeting: ports behind torchrun's own, or the port itself") {
  CHECK(candidate_ports(29400, false, "a") == std::vector<int>{29400});
  const std::vector<int> ports = candidate_ports(29400, true, "a");
  CHECK(ports == candidate_ports(29400, true, "a"));
  CHECK(ports != candidate_ports(29400, true, "b"));
  for (const int base : {29400, 65000, 65535})
    for (const int port : candidate_ports(base, true, "a")) CHECK((port != base && port > 1024 && port <= 65535));
}

TEST_CASE("meeting: at an address, through a file, and behind a port that the launcher owns") {
  const int port = free_port();
  Job by_address(
      3,
      [](int) {
        Group group = init();
        RANK_CHECK(count_ranks(group) == 3);
      },
      local(port));
  for (const RankResult& result : by_address.wait()) CHECK(result.code == 0);
  Job by_file(3, [](int) {
    Group group = init();
    RANK_CHECK(count_ranks(group) == 3);
  });
  for (const RankResult& result : by_file.wait()) CHECK(result.code == 0);
  const Socket launcher = Socket::listen("127.0.0.1", 0);
  const int owned = launcher.port();
  Job behind(2, [=](int rank) {
    Group group = init({.place = torchrun_place(rank, 2, owned, "run")});
    RANK_CHECK(count_ranks(group) == 2);
  });
  for (const RankResult& result : behind.wait()) CHECK(result.code == 0);
}

TEST_CASE("meeting: two jobs of one host do not mix") {
  const Socket launcher = Socket::listen("127.0.0.1", 0);
  const int owned = launcher.port();
  const auto job_named = [=](const std::string& name, int world) {
    return [=](int rank) {
      Group group = init({.place = torchrun_place(rank, world, owned, name)});
      for (int i = 0; i < 20; ++i) RANK_CHECK(count_ranks(group) == world);
    };
  };
  Job first(2, job_named("first", 2)), second(3, job_named("second", 3));
  for (const RankResult& result : first.wait()) CHECK(result.code == 0);
  for (const RankResult& result : second.wait()) CHECK(result.code == 0);
}

TEST_CASE("meeting: a port in use is named, and other ranks say who answered there") {
  const Socket taken = Socket::listen("127.0.0.1", 0);
  Job job(
      2, [](int) { (void)init({.timeout = std::chrono::milliseconds(1000)}); }, local(taken.port()));
  const std::vector<RankResult> results = job.wait();
  check_all_fail(results, concat("cannot wait for the others at ", local(taken.port()), ": port ", taken.port(),
                                 ": listen: Address already in use"));
  CHECK(contains(results[1].text, "did not find rank 0 at " + local(taken.port())));
}

TEST_CASE("meeting: a rank that does not come is named") {
  Job job(2, [](int rank) {
    if (rank == 1) return;
    (void)init({.timeout = std::chrono::milliseconds(500)});
  });
  const std::vector<RankResult> results = job.wait();
  CHECK(results[0].text == concat("distributed::init: rank 1 of 2 did not come to rank 0 on ", host_name(), " within 0.5 s\n"));
}

TEST_CASE("meeting: ranks that do not fit together are an error on all of them") {
  const int port = free_port();
  const auto place = [=](int rank, int world) {
    return Place{.rank = rank, .world = world, .address = local(port), .job = "a"};
  };
  Job worlds(2, [&](int rank) { (void)init({.place = place(rank, 2 + rank)}); });
  check_all_fail(worlds.wait(), concat("rank 1 on ", host_name(), " expects 3 ranks, rank 0 on ", host_name(), " 2"));
  Job twice(3,
            [&](int rank) { (void)init({.place = place(std::min(rank, 1), 3), .timeout = std::chrono::milliseconds(1000)}); });
  check_all_fail(twice.wait(), "two processes are rank 1");
  CHECK_THROWS_WITH_AS((void)init({.place = place(2, 2)}), "distributed::init: expected a rank from 0 to 1, got 2",
                       DistributedError);
  CHECK_THROWS_WITH_AS((void)init({.place = Place{.world = 2, .address = "here"}}),
                       "distributed::init: expected POLYPHASE_ADDRESS as HOST:PORT or the path of a file, got \"here\"",
                       DistributedError);
}

TEST_CASE("meeting: a file that a killed job has left is replaced") {
  const TemporaryDirectory folder;
  const std::string file = folder.file("meeting");
  write_bytes(file, concat("nowhere.invalid ", free_port(), " old-job\n"));
  Job job(
      2,
      [](int rank) {
        if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        Group group = init();
        RANK_CHECK(count_ranks(group) == 2);
      },
      file);
  for (const RankResult& result : job.wait()) CHECK(result.code == 0);
  CHECK(folder.count() == 0);  // removed once all have met
}

TEST_CASE("meeting: strangers at rank 0's port are ignored") {
  const int port = free_port();
  Job job(
      2,
      [](int rank) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
        Group group = init({.timeout = std::chrono::milliseconds(5000)});
        RANK_CHECK(count_ranks(group) == 2);
      },
      local(port));
  for (int i = 0; i < 50; ++i) {
    try {
      const Socket stranger = Socket::connect("127.0.0.1", port, Clock::now() + std::chrono::seconds(1));
      stranger.send("GET / HTTP/1.1\r\n\r\n", 18, Clock::now() + std::chrono::seconds(1));
      break;
    } catch (const DistributedError&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  for (const RankResult& result : job.wait()) CHECK(result.code == 0);
}

namespace {

bool is_launched() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr || std::getenv("TORCHELASTIC_RUN_ID") != nullptr; }

// Runs this program's case for launched ranks three times by `launcher`. Open MPI leaks memory, and its modules are unloaded
// when LeakSanitizer would look for their names.
bool launch(const std::string& launcher) {
  const std::string program = "/proc/" + std::to_string(::getpid()) + "/exe";
  return std::system(("ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" " + launcher + " " + program +
                      " --test-case='meeting: a launched rank' > /dev/null 2>&1")
                         .c_str()) == 0;
}

bool exists(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }

}  // namespace

// Started by the next cases, once for each rank.
TEST_CASE("meeting: a launched rank" * doctest::skip(!is_launched())) {
  Group group = init({.device = Device::cpu()});
  CHECK_FALSE(group.place().launcher.empty());
  CHECK(count_ranks(group) == 3);
}

TEST_CASE("meeting: under mpirun, through MPI" * doctest::skip(is_launched())) {
  if (!exists("mpirun --version")) SKIP_TEST("no mpirun on this machine");
  CHECK(launch("timeout 60 mpirun --allow-run-as-root --oversubscribe -n 3"));
}

// torchrun takes many seconds to load PyTorch.
TEST_CASE("meeting: under torchrun, which has a server at MASTER_PORT" * doctest::skip(is_launched())) {
  const char* torchrun = std::getenv("POLYPHASE_TORCHRUN");
  if (torchrun == nullptr) SKIP_TEST("POLYPHASE_TORCHRUN names no torchrun");
  CHECK(launch(concat("timeout 300 ", torchrun, " --no-python --nproc-per-node 3 --master-port ", free_port())));
}
