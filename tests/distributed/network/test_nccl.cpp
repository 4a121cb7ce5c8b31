#include "distributed/network/nccl.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "cuda/cuda.hpp"
#include "support/helpers.hpp"
#include "support/ranks.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

TEST_CASE("nccl: a missing library is named, with the variable that names another") {
  const std::string text = run_ranks(2, [](Group group) {
    ::setenv("POLYPHASE_NCCL", "/nowhere/libnccl.so.2", 1);
    (void)make_nccl({.rank = group.rank(), .world = 2, .device = Device::cuda(0), .hosts = {"a", "b"}},
                    group.host_communicator(), std::make_shared<Failure>());
  });
  CHECK(text.starts_with("distributed::init: NCCL is needed and was not found (/nowhere/libnccl.so.2: "));
  CHECK(text.ends_with("); POLYPHASE_NCCL may name its library\n"));
}

// Started by the next case, once for each GPU: a process that has used CUDA cannot be forked.
TEST_CASE("nccl: operations of a rank" * doctest::skip(std::getenv("POLYPHASE_RANK") == nullptr)) {
  Group group = init({.device = Device::cuda(std::atoi(std::getenv("POLYPHASE_RANK")))});
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
  group.barrier();
}

TEST_CASE("nccl: two GPUs of this machine" * doctest::skip(std::getenv("POLYPHASE_RANK") != nullptr)) {
  if (cuda::device_count() < 2) SKIP_TEST("fewer than two GPUs");
  const TemporaryDirectory folder;
  const std::string program = "/proc/" + std::to_string(::getpid()) + "/exe --test-case='nccl: operations of a rank' & ";
  std::string command = "wait_all() { for p in $(jobs -p); do wait $p || exit 1; done; }; ";
  for (const char* rank : {"0", "1"})
    command += "POLYPHASE_RANK=" + std::string(rank) + " POLYPHASE_WORLD=2 POLYPHASE_ADDRESS=" + folder.file("meeting") + " " +
               program;
  CHECK(std::system(("bash -c \"" + command + "wait_all\"").c_str()) == 0);
}
