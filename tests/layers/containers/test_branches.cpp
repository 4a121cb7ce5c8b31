#include "layers/containers/branches.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::layers;
using namespace polyphase::testing;

TEST_CASE("branches: a sum and a mean, under the name of who asks") {
  const std::vector<std::shared_ptr<Module>> modules{std::make_shared<LeakyReLU>(0.5), std::make_shared<ReLU>()};
  const Tensor x = Tensor::from_vector<double>({-2, 4});
  CHECK(forward_branches("net", modules, x, BranchSum::plain).to_vector<double>() == std::vector<double>{-1, 8});
  CHECK(forward_branches("net", modules, x, BranchSum::mean).to_vector<double>() == std::vector<double>{-0.5, 4});
  CHECK(error_of<ShapeError>([&] { return forward_branches("net", {}, x, BranchSum::mean); }) ==
        "net: expected at least one branch, got none");
  CHECK(error_of<ShapeError>([&] { return BranchesStream("net", {}, BranchSum::mean), 0; }) ==
        "net: expected at least one branch, got none");
}

TEST_CASE("branches: a stream adds what the modules' streams return") {
  const std::vector<std::shared_ptr<Module>> modules{std::make_shared<LeakyReLU>(0.5), std::make_shared<ReLU>()};
  BranchesStream stream("net", modules, BranchSum::plain);
  const Tensor x = random_f64({1, 2, 5});
  CHECK(max_difference(stream.push(x, true), forward_branches("net", modules, x, BranchSum::plain)) == 0);
}
