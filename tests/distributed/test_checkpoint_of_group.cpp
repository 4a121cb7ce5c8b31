#include "distributed/checkpoint_of_group.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <csignal>

#include "distributed/data_order.hpp"
#include "distributed/data_parallel.hpp"
#include "layers/losses.hpp"
#include "ops/elementwise.hpp"
#include "optim/adam.hpp"
#include "support/ranks.hpp"
#include "support/small_net.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

// A training that continues from `file` if `resumes`, does steps up to `end` and saves. Its noise comes from the rank's
// generator.
Weights train(Group group, const std::string& file, bool resumes, std::int64_t end, bool with_noise = true) {
  Sequential net = make_small_net(1);
  Generator generator(100 + static_cast<std::uint64_t>(group.rank()));
  std::optional<Checkpoint> saved;
  if (resumes) saved = distributed::load_checkpoint(group, file);
  if (saved) net.load_state_dict(saved->model);
  DataParallel parallel(group, net);
  AdamW optimizer(net.parameters());
  if (saved) {
    optimizer.load_state(saved->state("optimizer"));
    generator.set_state(saved->generator("noise"));
    group.set_step(saved->step);
  }
  DataOrder order({.samples = 40, .batch = 4, .seed = 5});
  while (group.step() < end) {
    optimizer.zero_grad();
    for (const std::int64_t sample : order.indices(group.step(), group.rank(), group.world())) {
      const Tensor x = part_of(small_batch(sample, 1), 0, 8), noise = Tensor::randn(x.shape(), {}, &generator);
      const DataParallel::NoSync no_sync(parallel);
      (mse_loss(net(with_noise ? x + noise : x), part_of(small_batch(sample, 2), 0, 8)) * 0.5).backward();
    }
    (mse_loss(net(Tensor::zeros({1, 2, 20})), Tensor::zeros({1, 2, 20})) * 0.0).backward();  // sends the sums
    optimizer.step();
    (void)group.end_step();
  }
  distributed::save_checkpoint(group, file,
                               {.model = net.state_dict(),
                                .states = {{"optimizer", optimizer.state()}},
                                .generators = {{"noise", generator.state()}},
                                .step = group.step()});
  return weights_of(net);
}

}  // namespace

TEST_CASE("checkpoint of a group: a run of two ranks continues bit for bit") {
  const TemporaryDirectory folder;
  CHECK(run_ranks(2, [&](Group group) {
          const Weights whole = train(group, folder.file("whole"), false, 6);
          group.set_step(0);
          (void)train(group, folder.file("half"), false, 3);
          group.set_step(0);
          RANK_CHECK(train(group, folder.file("half"), true, 6) == whole);
        }) == "");
  CHECK(folder.count() == 2);
}

TEST_CASE("checkpoint of a group: a run continues with another number of ranks") {
  const TemporaryDirectory folder;
  const std::string file = folder.file("run");
  CHECK(run_ranks(2, [&](Group group) { (void)train(group, file, false, 3); }) == "");
  for (const int world : {4, 1}) {
    const auto resume = [&](Group group) {
      const Checkpoint saved = distributed::load_checkpoint(group, file);
      RANK_CHECK(saved.step == 3);
      RANK_CHECK(saved.generator("noise").seed == (group.rank() < 2
                                                       ? 100U + static_cast<unsigned>(group.rank())
                                                       : 100U + 0x9E3779B97F4A7C15ULL * static_cast<unsigned>(group.rank())));
      (void)train(group, folder.file("other"), false, 1);
    };
    if (world == 1) {
      resume(init({.place = Place{}, .device = Device::cpu()}));
    } else {
      CHECK(run_ranks(world, resume) == "");
    }
  }
}

TEST_CASE("checkpoint of a group: a full disk on rank 0 is an error on all ranks, and the old file stays") {
  const TemporaryDirectory folder;
  const std::string file = folder.file("run");
  CHECK(run_ranks(2, [&](Group group) {
          const Checkpoint small{.model = {{"a", Tensor::ones({4})}}, .step = 1};
          const Checkpoint large{.model = {{"a", Tensor::ones({1'000'000})}}, .step = 2};
          distributed::save_checkpoint(group, file, small);
          std::signal(SIGXFSZ, SIG_IGN);
          const rlimit limit{100'000, 100'000};
          if (group.is_first()) ::setrlimit(RLIMIT_FSIZE, &limit);
          std::string text;
          try {
            distributed::save_checkpoint(group, file, large);
          } catch (const FormatError& error) {
            text = error.what();
          }
          RANK_CHECK(text.find(file) != std::string::npos);
          RANK_CHECK(distributed::load_checkpoint(group, file).step == 1);
        }) == "");
  CHECK(folder.count() == 1);
}

TEST_CASE("checkpoint of a group: ranks that read different files are an error") {
  const TemporaryDirectory folder;
  for (const int rank : {0, 1}) polyphase::save_checkpoint(folder.file(std::to_string(rank)), {.step = rank});
  const std::string text =
      run_ranks(2, [&](Group group) { (void)distributed::load_checkpoint(group, folder.file(std::to_string(group.rank()))); });
  CHECK(text.find("the checkpoints differ between ranks: it has step 1, rank 0 has step 0") != std::string::npos);
}
