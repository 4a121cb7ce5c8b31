#include "autograd/node.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using autograd::Gradients;
using autograd::Needs;
using autograd::Saved;

namespace {

Tensor identity(const Tensor& x) {
  return autograd::record("identity", x.clone(), {x}, [](const Tensor& g, Needs) { return Gradients{g}; });
}

}  // namespace

TEST_CASE("Needs holds 64 inputs") {
  Needs needs;
  CHECK_FALSE(needs.any());
  needs.set(0);
  needs.set(63);
  CHECK(needs[0]);
  CHECK_FALSE(needs[1]);
  CHECK(needs[63]);
}

TEST_CASE("record follows gradients only where an input does") {
  const Tensor leaf = leaf_of({1});
  const Tensor constant = Tensor::from_vector<double>({2});
  CHECK(identity(leaf).requires_grad());
  CHECK_FALSE(identity(leaf).is_leaf());
  CHECK_FALSE(identity(constant).requires_grad());
  CHECK(identity(constant).is_leaf());
}

TEST_CASE("an edge is made only to inputs that require a gradient") {
  const Tensor leaf = leaf_of({1});
  const Tensor constant = Tensor::from_vector<double>({2});
  const Tensor made = identity(leaf);
  const Tensor none;
  const auto backward = [](const Tensor&, Needs) { return Gradients(4); };
  const Tensor out = autograd::record("four", constant.clone(), {leaf, constant, made, none}, backward);
  const autograd::Node& node = *TensorAccess::meta(out)->node;
  REQUIRE(node.edges.size() == 4);
  CHECK(node.edges[0].leaf == TensorAccess::meta(leaf));
  CHECK_FALSE(static_cast<bool>(node.edges[1]));
  CHECK(node.edges[2].node == TensorAccess::meta(made)->node);
  CHECK_FALSE(static_cast<bool>(node.edges[3]));
  CHECK(node.needs[0]);
  CHECK_FALSE(node.needs[1]);
  CHECK(node.needs[2]);
  CHECK(node.sequence > TensorAccess::meta(made)->node->sequence);
}

TEST_CASE("record refuses more than 64 inputs") {
  const std::vector<Tensor> inputs(65, leaf_of({1}));
  const std::string text = error_of<AutogradError>(
      [&] { return autograd::record("many", Tensor::zeros({1}), inputs, [](const Tensor&, Needs) { return Gradients(65); }); });
  CHECK(text == "many: expected at most 64 inputs, got 65");
}

TEST_CASE("Saved keeps the elements off the tape and notices writes") {
  Tensor x = Tensor::from_vector<double>({1, 2});
  const Saved saved(x);
  CHECK(saved.defined());
  CHECK(saved.get().to_vector<double>() == std::vector<double>{1, 2});
  const std::uint64_t version = x.storage().version();
  x.fill_(3);
  CHECK(error_of<AutogradError>([&] { return saved.get(); }) ==
        concat("a tensor saved for backward was written in place since (version ", version + 1, ", expected ", version, ")"));
  CHECK_FALSE(Saved(leaf_of({1}) * 2.0).get().requires_grad());
  CHECK_FALSE(Saved().defined());
  CHECK_FALSE(autograd::save_if(false, x).defined());
  CHECK(autograd::save_if(true, x).defined());
}

TEST_CASE("a graph of a million nodes is freed without recursion") {
  const auto link = [](const Tensor& a, const Tensor& b) {
    return autograd::record("link", a.detach(), {a, b}, [](const Tensor& g, Needs) { return Gradients{g, g}; });
  };
  for (const char* form : {"chain", "one input twice", "residual"}) {
    CAPTURE(form);
    Tensor x = leaf_of({1});
    for (int i = 0; i < 1'000'000; ++i) x = form[0] == 'c' ? link(x, {}) : form[0] == 'o' ? link(x, x) : link(x, link(x, {}));
    x = Tensor();
    CHECK_FALSE(x.defined());
  }
}
