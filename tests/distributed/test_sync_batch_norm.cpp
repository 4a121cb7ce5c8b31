#include "distributed/sync_batch_norm.hpp"

#include <doctest/doctest.h>

#include "distributed/data_parallel.hpp"
#include "layers/losses.hpp"
#include "layers/norm.hpp"
#include "ops/elementwise.hpp"
#include "support/ranks.hpp"
#include "support/small_net.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

Sequential make_net() {
  Generator generator(1);
  const GeneratorGuard guard(generator);
  return Sequential(Conv1d({.in_channels = 2, .out_channels = 6, .kernel_size = 3, .padding = 1, .dtype = DType::f64}),
                    BatchNorm1d({.num_features = 6, .dtype = DType::f64}),
                    Conv1d({.in_channels = 6, .out_channels = 2, .kernel_size = 1, .dtype = DType::f64}),
                    BatchNorm1d({.num_features = 2, .momentum = std::nullopt, .dtype = DType::f64}));
}

// Far from zero, where a sum of squares would lose the variance.
Tensor far(const Tensor& batch) { return batch.to(DType::f64) + 1000.0; }

}  // namespace

TEST_CASE("synchronised batch norm: outputs, statistics and gradients are those of the whole batch") {
  for (const int world : {2, 4})
    CHECK(run_ranks(world, [](Group group) {
            Sequential whole = make_net(), split = make_net();
            RANK_CHECK(synchronize_batch_norm(split, group) == 2);
            DataParallel parallel(group, split);
            const auto mine = [&](const Tensor& batch) { return part_of(batch, group.rank(), group.world()); };
            const Tensor x = far(small_batch(0, 1)), target = small_batch(0, 2).to(DType::f64);
            Tensor x_whole = x.clone(), x_split = mine(x).clone();
            x_whole.set_requires_grad(true), x_split.set_requires_grad(true);
            for (int step = 0; step < 2; ++step) {
              const Tensor y = whole(x_whole), y_split = split(x_split);
              RANK_CHECK(max_difference(mine(y), y_split) < kDoubleFar);
              whole.zero_grad(), split.zero_grad(), x_whole.set_grad({}), x_split.set_grad({});
              mse_loss(y, target).backward();
              mse_loss(y_split, mine(target)).backward();
            }
            // The loss is a mean over this rank's part: its gradient to x is world times that of the mean over all.
            RANK_CHECK(max_difference(mine(x_whole.grad()) * group.world(), x_split.grad()) < kDoubleFar);
            for (std::size_t i = 0; i < whole.parameters().size(); ++i)
              RANK_CHECK(max_difference(whole.parameters()[i].grad(), split.parameters()[i].grad()) < kDoubleFar * 1000);
            for (std::size_t i = 0; i < whole.state_dict().size(); ++i)
              RANK_CHECK(max_difference(whole.state_dict()[i].second, split.state_dict()[i].second) < kDoubleFar);
          }) == "");
}

TEST_CASE("synchronised batch norm: nothing changes in evaluation and in a group of one") {
  Sequential net = make_net();
  CHECK(synchronize_batch_norm(net, init({.place = Place{}, .device = Device::cpu()})) == 0);
  CHECK(run_ranks(2, [](Group group) {
          Sequential plain = make_net(), split = make_net();
          (void)synchronize_batch_norm(split, group);
          plain.eval(), split.eval();
          const Tensor x = far(small_batch(group.rank(), 1));
          if (group.is_first()) RANK_CHECK(max_difference(plain(x), split(x)) == 0);  // the other rank takes no part
        }) == "");
}
