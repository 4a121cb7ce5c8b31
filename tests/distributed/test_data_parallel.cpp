#include "distributed/data_parallel.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "distributed/data_parallel_buckets.hpp"
#include "distributed/data_parallel_tree.hpp"
#include "layers/conv1d.hpp"
#include "layers/losses.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "optim/adam.hpp"
#include "optim/clip.hpp"
#include "support/helpers.hpp"
#include "support/ranks.hpp"
#include "support/small_net.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

constexpr int kSteps = 5;

// Trains on the whole batch in one process.
Weights trained_alone() {
  Sequential net = make_small_net(1);
  AdamW optimizer(net.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    mse_loss(net(small_batch(step, 1)), small_batch(step, 2)).backward();
    (void)clip_grad_norm(net.parameters(), 0.5);
    optimizer.step();
  }
  return weights_of(net);
}

// Trains on this rank's part, in `parts` backward passes.
Weights trained_together(Group group, const DataParallelOptions& options, int passes = 1) {
  Sequential net = make_small_net(static_cast<std::uint64_t>(group.rank()) + 1);  // rank 0's weights count
  DataParallel parallel(group, net, options);
  AdamW optimizer(net.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < passes; ++pass) {
      const auto mine = [&](const Tensor& batch) {
        return part_of(batch, group.rank() * passes + pass, group.world() * passes);
      };
      const Tensor loss = mse_loss(net(mine(small_batch(step, 1))), mine(small_batch(step, 2)));
      if (options.micro_batches > 0) {
        loss.backward();
      } else if (pass + 1 < passes) {
        const DataParallel::NoSync no_sync(parallel);
        (loss * (1.0 / passes)).backward();
      } else {
        (loss * (1.0 / passes)).backward();
      }
    }
    (void)clip_grad_norm(net.parameters(), 0.5);
    optimizer.step();
    (void)group.end_step();
  }
  parallel.check_parameters();
  return weights_of(net);
}

// The text of the first rank that fails where two ranks make a DataParallel of `make(rank)`.
std::string error_of(const std::function<void(Group&)>& work) {
  return run_ranks(2, [&](Group group) { work(group); });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("data parallel: 2, 3 and 4 ranks train as one process does on the whole batch") {
  const Weights alone = trained_alone();
  for (const int world : {2, 4})
    for (const std::int64_t bytes : {1, 300, 1 << 20})
      CHECK(run_ranks(world, [&](Group group) {
              const Weights bits =
                  trained_together(group, {.first_bucket_bytes = bytes, .bucket_bytes = bytes, .check_every = 1});
              RANK_CHECK(difference(bits, alone) < kFloatTraining);
            }) == "");
  CHECK(run_ranks(3, [](Group group) {  // world divides neither the buckets nor the batch
          Sequential net = make_small_net(1);
          DataParallel parallel(group, net);
          mse_loss(net(small_batch(group.rank(), 1)), small_batch(group.rank(), 2)).backward();
          parallel.check_parameters();
        }) == "");
}

TEST_CASE("data parallel: gradient accumulation sends once and has the same result") {
  const Weights alone = trained_alone();
  CHECK(run_ranks(2, [&](Group group) { RANK_CHECK(difference(trained_together(group, {}, 2), alone) < kFloatTraining); }) ==
        "");
}

TEST_CASE("data parallel: the fixed order has the same bits on 1, 2 and 4 ranks, and from run to run") {
  const DataParallelOptions options{.micro_batches = 8};
  const Weights alone = trained_together(init({.place = Place{}, .device = Device::cpu()}), options, 8);
  CHECK(difference(alone, trained_alone()) < kFloatTraining);
  for (const int world : {2, 4})
    CHECK(run_ranks(world, [&](Group group) { RANK_CHECK(trained_together(group, options, 8 / world) == alone); }) == "");
}

TEST_CASE("data parallel: every launch has the same bits") {
  const char* given = std::getenv("POLYPHASE_LAUNCHES");  // 20 by hand
  const int launches = given != nullptr ? std::atoi(given) : 2;
  const TemporaryDirectory folder;
  std::string first;
  for (int launch = 0; launch < launches; ++launch) {
    CHECK(run_ranks(3, [&](Group group) {
            Sequential net = make_small_net(1);
            DataParallel parallel(group, net, {.first_bucket_bytes = 600, .bucket_bytes = 600});
            AdamW optimizer(net.parameters());
            for (int step = 0; step < 50; ++step) {
              optimizer.zero_grad();
              mse_loss(net(small_batch(3 * step + group.rank(), 1)), small_batch(3 * step + group.rank(), 2)).backward();
              optimizer.step();
            }
            const Weights weights = weights_of(net);
            const std::string bytes(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
            if (group.is_first()) write_bytes(folder.file("weights"), bytes);
          }) == "");
    const std::string bytes = read_bytes(folder.file("weights"));
    if (launch == 0) first = bytes;
    CHECK(bytes == first);
  }
}

TEST_CASE("data parallel: one rank has no observer and no bucket") {
  Sequential net = make_small_net(1);
  DataParallel parallel(init({.place = Place{}, .device = Device::cpu()}), net);
  CHECK(parallel.bucket_count() == 0);
  mse_loss(net(small_batch(0, 1)), small_batch(0, 2)).backward();
  const Tensor gradient = net.parameters()[0].grad();
  CHECK(gradient.storage().bytes() == static_cast<std::size_t>(gradient.numel()) * sizeof(float));
}

TEST_CASE("data parallel: parameters that a pass does not reach get no gradient, and zeros are sent for them") {
  CHECK(run_ranks(2, [](Group group) {
          Sequential net = make_small_net(1);
          Conv1d unused({.in_channels = 2, .out_channels = 2, .kernel_size = 1});
          struct Both : Module {
            Module &a, &b;
            Both(Module& first, Module& second) : a(first), b(second) {}
            void visit(Visitor& v) override { v.module("a", a), v.module("b", b); }
            Tensor forward(const Tensor& x) override { return x; }
          } both(net, unused);
          DataParallel parallel(group, both, {.first_bucket_bytes = 64, .bucket_bytes = 64});
          mse_loss(net(small_batch(0, 1)), small_batch(0, 2)).backward();
          RANK_CHECK(net.parameters()[0].grad().defined());
          RANK_CHECK(!unused.parameters()[0].grad().defined());
        }) == "");
}

TEST_CASE("data parallel: networks, options and settings that differ are an error that names the difference") {
  CHECK(contains(error_of([](Group& group) {
                   Conv1d net({.in_channels = 2, .out_channels = group.rank() == 0 ? 4 : 5, .kernel_size = 3});
                   DataParallel parallel(group, net);
                 }),
                 "the networks or options differ between ranks: it has weight (5, 2, 3) f32, rank 0 has weight (4, 2, 3) f32"));
  CHECK(contains(error_of([](Group& group) {
                   Sequential net = make_small_net(1);
                   DataParallel parallel(group, net, {.settings = concat("batch ", group.rank())});
                 }),
                 "it has batch 1, rank 0 has batch 0"));
}

TEST_CASE("data parallel: a NaN on one rank is named with its parameter") {
  const std::string text = error_of([](Group& group) {
    Sequential net = make_small_net(1);
    DataParallel parallel(group, net);
    group.set_step(7);
    const double factor = group.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
    (mse_loss(net(small_batch(0, 1)), small_batch(0, 2)) * factor).backward();
  });
  CHECK(contains(text, "rank 1 on "));
  CHECK(contains(text, "the gradient of "));
  CHECK(contains(text, " is infinite or NaN (step 7)"));
}

TEST_CASE("data parallel: a rank whose parameters differ has diverged") {
  const std::string text = run_ranks(3, [](Group group) {
    Sequential net = make_small_net(1);
    DataParallel parallel(group, net, {.check_every = 2});
    for (int step = 0; step < 4; ++step) {
      if (step == 2 && group.rank() == 1) net.parameters()[0].detach().copy_(Tensor::ones({6, 2, 3}));
      (void)group.end_step();
    }
  });
  CHECK(contains(text, "rank 1 on "));
  CHECK(contains(text, "its parameters are not those of the other ranks, 2 of which agree: it has diverged (step 3)"));
}

TEST_CASE("data parallel: options out of range are refused") {
  Sequential net = make_small_net(1);
  const Group group = init({.place = Place{}, .device = Device::cpu()});
  CHECK_THROWS_WITH_AS(DataParallel(group, net, {.micro_batches = 6}),
                       "DataParallel: expected micro_batches to be a power of two that world=1 divides, got 6", ShapeError);
  CHECK_THROWS_WITH_AS(DataParallel(group, net, {.bucket_bytes = 0}),
                       "DataParallel: expected buckets of at least one byte, got 1048576 and 0", ShapeError);
}

TEST_CASE("data parallel: buckets hold all parameters in reverse order, aligned, and break at a dtype") {
  std::vector<Tensor> parameters;
  for (const std::int64_t size : {100, 3, 0, 70, 70}) parameters.push_back(Tensor::zeros({size}));
  parameters[0] = parameters[0].to(DType::f64);
  const std::vector<Bucket> buckets = make_buckets(parameters, 512, 1024, 3);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].slots.size() == 1);  // 70 elements take 128
  CHECK(buckets[0].slots[0].parameter == 4);
  CHECK(buckets[1].slots.size() == 3);
  CHECK(buckets[1].slots[2].offset == 128);
  CHECK(buckets[2].buffer.dtype() == DType::f64);
  for (const Bucket& bucket : buckets) CHECK(bucket.buffer.numel() % 3 == 0);
  const std::vector<BucketPlace> places = places_in(buckets, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) CHECK(places[i].view.shape() == parameters[i].shape());
}

TEST_CASE("data parallel: the tree adds neighbours first") {
  // 1 is lost when it is added to 2^24 alone, and kept when two of them meet first.
  MicroBatchTree tree;
  const auto value = [](double number) { return Tensor::full({1}, number); };
  for (const double number : {16777216.0, 0.0, 1.0, 1.0}) tree.add(value(number));
  CHECK(tree.count() == 4);
  CHECK(tree.take().item() == 16777218.0);
  for (const double number : {16777216.0, 1.0, 1.0, 0.0}) tree.add(value(number));
  CHECK(tree.take().item() == 16777216.0);
  const Tensor rows = Tensor::from_vector<float>({16777216.0F, 0, 1, 1}, {4, 1});
  add_rows_as_tree(rows);
  CHECK(rows.select(0, 0).item() == 16777218.0);
}
