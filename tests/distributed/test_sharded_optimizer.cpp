#include "distributed/sharded_optimizer.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "layers/losses.hpp"
#include "ops/elementwise.hpp"
#include "optim/adam.hpp"
#include "optim/clip.hpp"
#include "optim/grad_scaler.hpp"
#include "optim/sgd.hpp"
#include "support/ranks.hpp"
#include "support/small_net.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

constexpr AdamWOptions kAdam{.learning_rate = 1e-2, .weight_decay = 0.1};

std::unique_ptr<Optimizer> make_adam(std::vector<Tensor> shards) { return std::make_unique<AdamW>(std::move(shards), kAdam); }

DataParallelOptions small_buckets(bool shards, std::int64_t micro_batches = 0) {
  return {.first_bucket_bytes = 600, .bucket_bytes = 600, .micro_batches = micro_batches, .shard_gradients = shards};
}

void backward(const Group& group, Module& net, std::int64_t step, int passes = 1) {
  for (int pass = 0; pass < passes; ++pass) {
    const auto mine = [&](const Tensor& batch) { return part_of(batch, group.rank() * passes + pass, group.world() * passes); };
    mse_loss(net(mine(small_batch(step, 1))), mine(small_batch(step, 2))).backward();
  }
}

Weights trained_plainly(const Group& group, std::int64_t micro_batches = 0) {
  Sequential net = make_small_net(1);
  DataParallel parallel(group, net, small_buckets(false, micro_batches));
  AdamW optimizer(net.parameters(), kAdam);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    backward(group, net, step, micro_batches > 0 ? static_cast<int>(micro_batches) / group.world() : 1);
    optimizer.step();
  }
  return weights_of(net);
}

Weights trained_in_shards(const Group& group, std::int64_t micro_batches = 0) {
  Sequential net = make_small_net(1);
  DataParallel parallel(group, net, small_buckets(true, micro_batches));
  ShardedOptimizer optimizer(parallel, make_adam);
  for (int step = 0; step < 4; ++step) {
    backward(group, net, step, micro_batches > 0 ? static_cast<int>(micro_batches) / group.world() : 1);
    optimizer.step();
  }
  parallel.check_parameters();
  return weights_of(net);
}

}  // namespace

TEST_CASE("sharded optimizer: the weights have the bits of the optimizer without shards") {
  for (const int world : {2, 3, 4})
    CHECK(run_ranks(world, [](Group group) { RANK_CHECK(trained_in_shards(group) == trained_plainly(group)); }) == "");
  CHECK(run_ranks(4, [](Group group) { RANK_CHECK(trained_in_shards(group, 8) == trained_plainly(group, 8)); }) == "");
  const Group alone = init({.place = Place{}, .device = Device::cpu()});
  CHECK(trained_in_shards(alone) == trained_plainly(alone));
}

TEST_CASE("sharded optimizer: the norm is the whole gradient's, and clipping scales all of it") {
  CHECK(run_ranks(3, [](Group group) {
          const auto norms = [&](bool shards) {
            Sequential net = make_small_net(1);
            DataParallel parallel(group, net, small_buckets(shards));
            backward(group, net, 0);
            if (!shards) {
              const double before = clip_grad_norm(net.parameters(), 0.01).item();
              return std::pair(before, clip_grad_norm(net.parameters(), 1).item());
            }
            ShardedOptimizer optimizer(parallel, make_adam);
            const double before = optimizer.clip_grad_norm(0.01).item();
            return std::pair(before, optimizer.clip_grad_norm(1).item());
          };
          const auto [sharded, clipped] = norms(true);
          const auto [plain, plain_clipped] = norms(false);
          RANK_CHECK(std::abs(sharded / plain - 1) < kFloatRounding);
          RANK_CHECK(std::abs(clipped / plain_clipped - 1) < kFloatRounding);
          RANK_CHECK(std::abs(clipped / 0.01 - 1) < 1e-3);
        }) == "");
}

TEST_CASE("sharded optimizer: its state is that without shards, and continues with any number of ranks") {
  const TemporaryDirectory folder;
  Weights expected;
  {
    Sequential net = make_small_net(1);
    AdamW optimizer(net.parameters(), kAdam);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      backward(init({.place = Place{}, .device = Device::cpu()}), net, step);
      optimizer.step();
    }
    const OptimizerState plain = optimizer.state();
    for (const int world : {2, 4}) {
      CHECK(run_ranks(world, [&](Group group) {
              Sequential own = make_small_net(1);
              DataParallel parallel(group, own, small_buckets(true));
              ShardedOptimizer sharded(parallel, make_adam);
              sharded.load_state(plain);
              const OptimizerState back = sharded.state();
              RANK_CHECK(back.numbers.size() == plain.numbers.size());
              RANK_CHECK(back.tensors.size() == plain.tensors.size());
              for (const auto& [name, tensor] : plain.tensors) {
                const auto found = std::find_if(back.tensors.begin(), back.tensors.end(),
                                                [&](const auto& entry) { return entry.first == name; });
                RANK_CHECK(found != back.tensors.end());
                RANK_CHECK(max_difference(found->second, tensor) == 0);
              }
              RANK_CHECK(sharded.local().steps() == 2);
              // A plain optimizer takes it, too.
              AdamW again(own.parameters(), kAdam);
              again.load_state(back);
            }) == "");
    }
  }
}

TEST_CASE("sharded optimizer: an overflow on one rank skips the step on all") {
  CHECK(run_ranks(2, [](Group group) {
          Sequential net = make_small_net(1);
          DataParallelOptions options = small_buckets(true);
          options.check_finite = false;
          DataParallel parallel(group, net, options);
          ShardedOptimizer optimizer(parallel, make_adam);
          GradScaler scaler({.initial_scale = 4, .agree = optimizer.agree()});
          const Weights before = weights_of(net);
          Tensor loss = mse_loss(net(small_batch(0, 1)), small_batch(0, 2));
          scaler.scale(loss).backward();
          // The first parameter's gradient is in one rank's share only.
          Tensor gradient = net.parameters()[0].grad();
          gradient.detach().fill_(std::numeric_limits<double>::infinity());
          scaler.unscale(optimizer.local());
          scaler.step(optimizer.local());
          scaler.update();
          RANK_CHECK(scaler.skipped() == 1);
          RANK_CHECK(scaler.scale() == 2);
          RANK_CHECK(optimizer.local().steps() == 0);
        }) == "");
}

TEST_CASE("sharded optimizer: what does not fit is refused") {
  const Group alone = init({.place = Place{}, .device = Device::cpu()});
  Sequential net = make_small_net(1);
  DataParallel plain(alone, net);
  CHECK_THROWS_WITH_AS(ShardedOptimizer(plain, make_adam), "ShardedOptimizer: expected a DataParallel with shard_gradients",
                       Error);
  DataParallel parallel(alone, net, small_buckets(true));
  ShardedOptimizer optimizer(parallel, make_adam);
  CHECK_THROWS_WITH_AS(optimizer.step(), "ShardedOptimizer::step: parameter 0.weight has no gradient", Error);
  CHECK_THROWS_WITH_AS(optimizer.load_state({.numbers = {{"parameters", 7}}}),
                       "ShardedOptimizer::load_state: expected the state of 6 parameters, got 7", Error);
}
