#include "distributed/network/nccl.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda.hpp"
#include "distributed/data_parallel.hpp"
#include "layers/losses.hpp"
#include "optim/adam.hpp"
#include "support/helpers.hpp"
#include "support/ranks.hpp"
#include "support/skip.hpp"
#include "support/small_net.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

constexpr int kSteps = 5;

/// Starts `case_name` of this program as each rank of a job: a process that has used CUDA cannot be forked. Returns the exit
/// codes; 124 after a signal.
std::vector<int> run_case(const std::string& case_name, int world, bool is_quiet = false) {
  const TemporaryDirectory folder;
  const std::string program = "/proc/" + std::to_string(::getpid()) + "/exe", filter = "--test-case=" + case_name;
  ::setenv("POLYPHASE_WORLD", std::to_string(world).c_str(), 1);
  ::setenv("POLYPHASE_ADDRESS", folder.file("meeting").c_str(), 1);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (is_quiet) ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < world; ++rank) {
    ::setenv("POLYPHASE_RANK", std::to_string(rank).c_str(), 1);
    std::vector<std::string> words{program, filter};
    std::vector<char*> arguments{words[0].data(), words[1].data(), nullptr};
    pid_t id = 0;
    if (::posix_spawn(&id, program.c_str(), &actions, nullptr, arguments.data(), environ) == 0) processes.push_back(id);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  for (const char* name : {"POLYPHASE_RANK", "POLYPHASE_WORLD", "POLYPHASE_ADDRESS"}) ::unsetenv(name);
  std::vector<int> codes;
  for (const pid_t id : processes) {
    int status = 0;
    ::waitpid(id, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 124);
  }
  return codes;
}

bool is_rank() { return std::getenv("POLYPHASE_RANK") != nullptr; }

/// One rank's training on its part of the batch: the weights after kSteps, the last three of them replays if `graph`. With a
/// group of one process it trains on the whole batch.
Weights trained(const Group& group, bool graph) {
  Sequential net = make_small_net(static_cast<std::uint64_t>(group.rank()) + 1);  // rank 0's weights count
  net.to(group.device());
  DataParallel parallel(group, net, {.first_bucket_bytes = 300, .bucket_bytes = 600});
  AdamW optimizer(net.parameters());
  const auto mine = [&](std::uint64_t seed) {
    return part_of(small_batch(0, seed), group.rank(), group.world()).contiguous().to(group.device());
  };
  const Tensor x = mine(1), y = mine(2);
  const auto step = [&] {
    optimizer.zero_grad();
    mse_loss(net(x), y).backward();
    optimizer.step();
  };
  for (int i = 0; i < 2; ++i) step();
  if (graph) {
    cuda::Graph captured = cuda::capture(step, group.device().index);
    for (int i = 2; i < kSteps; ++i) captured.replay();
    cuda::synchronize(group.device().index);
  } else {
    for (int i = 2; i < kSteps; ++i) step();
  }
  parallel.check_parameters();
  return weights_of(net);
}

}  // namespace

TEST_CASE("nccl: a missing library is named, with the variable that names another") {
  const std::string text = run_ranks(2, [](Group group) {
    ::setenv("POLYPHASE_NCCL", "/nowhere/libnccl.so.2", 1);
    (void)make_nccl({.rank = group.rank(), .world = 2, .device = Device::cuda(0), .hosts = {"a", "b"}},
                    group.host_communicator(), std::make_shared<Failure>());
  });
  CHECK(text.starts_with("distributed::init: NCCL is needed and was not found (/nowhere/libnccl.so.2: "));
  CHECK(text.ends_with("); POLYPHASE_NCCL may name its library\n"));
}

TEST_CASE("nccl: ranks that are started as processes report what they find" * doctest::skip(is_rank())) {
  CHECK(run_case("nccl: a rank that is not the first fails", 2, true) == std::vector<int>{0, 1});
}

// The next cases are started by others.
TEST_CASE("nccl: a rank that is not the first fails" * doctest::skip(!is_rank())) {
  CHECK(std::string(std::getenv("POLYPHASE_WORLD")) == "2");
  CHECK(std::string(std::getenv("POLYPHASE_RANK")) == "0");
}

TEST_CASE("nccl: operations of a rank" * doctest::skip(!is_rank())) {
  Group group = init();
  REQUIRE(group.device() == Device::cuda(group.rank()));
  Communicator& nccl = group.communicator();
  const DeviceGuard on_gpu(group.device());
  const int rank = group.rank(), world = group.world();
  for (const std::int64_t count : {1, 1000, 1'000'000}) {
    const Tensor sum = Tensor::full({count}, rank + 1);
    nccl.all_reduce(sum, Combine::sum, "sum").wait();
    CHECK(max_difference(sum, Tensor::full({count}, world * (world + 1) / 2)) == 0);
    const Tensor mean = Tensor::full({count}, rank + 1);
    nccl.all_reduce(mean, Combine::average, "mean").wait();
    CHECK(max_difference(mean, Tensor::full({count}, (world + 1) / 2.0)) == 0);
    const Tensor shares = Tensor::full({count * world}, rank + 1);
    nccl.reduce_scatter(shares, Combine::sum, "shares").wait();
    nccl.all_gather(shares, "gather").wait();
    CHECK(max_difference(shares, Tensor::full({count * world}, world * (world + 1) / 2)) == 0);
    const Tensor values = Tensor::full({count}, rank);
    nccl.broadcast(values, world - 1, "broadcast").wait();
    CHECK(max_difference(values, Tensor::full({count}, world - 1)) == 0);
  }
  const std::uint64_t waits = cuda::host_waits();
  const Tensor tensor = Tensor::ones({1000});
  nccl.all_reduce(tensor, Combine::sum, "no wait").wait();
  CHECK(cuda::host_waits() == waits);

  // Replays of a recorded operation, between others.
  const Tensor twice = Tensor::ones({1000});
  {
    cuda::Graph graph = cuda::capture([&] { nccl.all_reduce(twice, Combine::sum, "recorded").wait(); }, group.device().index);
    for (int i = 0; i < 2; ++i) graph.replay();
    nccl.all_reduce(twice, Combine::average, "between").wait();
    graph.replay();
    CHECK(max_difference(twice, Tensor::full({1000}, world * world * world)) == 0);
  }
  group.barrier();
}

// Sums until the group fails; the error's text. Rank 1 does something else after a hundred sums.
template <class End>
std::string sums_until_failure(const End& end) {
  Group group = init({.timeout = std::chrono::seconds(4)});
  const DeviceGuard on_gpu(group.device());
  const Tensor tensor = Tensor::ones({100'000});
  try {
    for (int i = 0;; ++i) {
      if (group.rank() == 1 && i == 100) end();
      group.communicator().all_reduce(tensor, Combine::average, "sum").wait();
      (void)tensor.narrow(0, 0, 1).to_vector<float>();
    }
  } catch (const DistributedError& error) {
    return error.what();
  }
}

TEST_CASE("nccl: a rank that is killed" * doctest::skip(!is_rank())) {
  const std::string text = sums_until_failure([] { ::raise(SIGKILL); });
  CHECK_MESSAGE(text.find("ended without a word") != std::string::npos, text);
}

TEST_CASE("nccl: a rank that hangs" * doctest::skip(!is_rank())) {
  const std::string text = sums_until_failure([] { std::this_thread::sleep_for(std::chrono::minutes(2)); });
  CHECK_MESSAGE(text.find("is hung") != std::string::npos, text);
}

TEST_CASE("nccl: training of a rank" * doctest::skip(!is_rank())) {
  Group group = init();
  REQUIRE(group.device() == Device::cuda(group.rank()));
  const Weights alone = trained(init({.place = Place{}, .device = group.device()}), false);
  const Weights together = trained(group, false);
  CHECK(difference(together, alone) < kFloatTraining);
  CHECK(trained(group, true) == together);
  if (const char* file = std::getenv("POLYPHASE_TEST_RESULT"); file != nullptr && group.is_first())
    write_bytes(file, {reinterpret_cast<const char*>(together.data()), together.size() * sizeof(float)});
  group.barrier();
}

TEST_CASE("nccl: a rank on the GPU of another" * doctest::skip(!is_rank())) {
  CHECK_THROWS_WITH_AS((void)init({.device = Device::cuda(0)}), doctest::Contains("expected a GPU for each rank, rank 0 on "),
                       DistributedError);
}

TEST_CASE("nccl: two ranks with one GPU are refused" * doctest::skip(is_rank())) {
  if (cuda::device_count() < 1) SKIP_TEST("no GPU");
  CHECK(run_case("nccl: a rank on the GPU of another", 2) == std::vector<int>{0, 0});
}

TEST_CASE("nccl: two GPUs of this machine, operations" * doctest::skip(is_rank())) {
  if (cuda::device_count() < 2) SKIP_TEST("fewer than two GPUs");
  CHECK(run_case("nccl: operations of a rank", 2) == std::vector<int>{0, 0});
}

TEST_CASE("nccl: two GPUs of this machine, training, eager and recorded" * doctest::skip(is_rank())) {
  if (cuda::device_count() < 2) SKIP_TEST("fewer than two GPUs");
  const char* given = std::getenv("POLYPHASE_LAUNCHES");  // 20 by hand
  const int launches = given != nullptr ? std::atoi(given) : 2;
  const TemporaryDirectory folder;
  ::setenv("POLYPHASE_TEST_RESULT", folder.file("weights").c_str(), 1);
  std::string first;
  for (int launch = 0; launch < launches; ++launch) {
    REQUIRE(run_case("nccl: training of a rank", 2) == std::vector<int>{0, 0});
    const std::string weights = read_bytes(folder.file("weights"));
    if (launch == 0) first = weights;
    CHECK(weights == first);
  }
  ::unsetenv("POLYPHASE_TEST_RESULT");
}

TEST_CASE("nccl: two GPUs of this machine, a killed and a hung rank end the other" * doctest::skip(is_rank())) {
  if (cuda::device_count() < 2) SKIP_TEST("fewer than two GPUs");
  CHECK(run_case("nccl: a rank that is killed", 2) == std::vector<int>{0, 124});
  CHECK(run_case("nccl: a rank that hangs", 2) == std::vector<int>{0, 1});
}
