#include "layers/containers/sum_of_branches.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Conv1d branch(std::int64_t kernel_size) {
  return Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = kernel_size, .padding = kernel_size / 2});
}

}  // namespace

TEST_CASE("sum of branches: added in order, not divided") {
  manual_seed(1);
  SumOfBranches net(branch(3), LeakyReLU(0.1), branch(7));
  const Tensor x = random_f64({2, 2, 37}).to(DType::f32);
  CHECK(max_difference(net(x), net[0](x) + net[1](x) + net[2](x)) == 0);
  CHECK(layer_gradcheck(net, {2, 2, 9}) == "");
}

TEST_CASE("sum of branches: names of the children, errors") {
  SumOfBranches net(named("shortcut", branch(1)), named("block", Sequential(LeakyReLU(), branch(3))));
  CHECK(net.state_dict().back().first == "block.1.bias");
  CHECK(error_of<ShapeError>([] { return SumOfBranches()(random_f64({2})); }) ==
        "SumOfBranches: expected at least one branch, got none");
}

TEST_CASE("sum of branches in pieces") {
  manual_seed(2);
  SumOfBranches net(named("shortcut", branch(1)), named("block", Sequential(LeakyReLU(), branch(9))));
  check_stream(net, {2, 2, 45});
  CHECK(receptive_field(net).right == 4);
}
