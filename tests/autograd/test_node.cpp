#include "autograd/node.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/engine.hpp"
#include "autograd/no_grad.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
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

// A recursion would take at least 64 bytes of the stack, of which there are 8 MiB, for each.
TEST_CASE("a graph of 200,000 nodes is freed without recursion") {
  const auto link = [](const Tensor& a, const Tensor& b) {
    return autograd::record("link", a.detach(), {a, b}, [](const Tensor& g, Needs) { return Gradients{g, g}; });
  };
  for (const char* form : {"chain", "one input twice", "residual"}) {
    CAPTURE(form);
    Tensor x = leaf_of({1});
    for (int i = 0; i < 200'000; ++i) x = form[0] == 'c' ? link(x, {}) : form[0] == 'o' ? link(x, x) : link(x, link(x, {}));
    x = Tensor();
    CHECK_FALSE(x.defined());
  }
}

namespace {

using Values = std::vector<double>;

Values grad_of(const Tensor& leaf) { return leaf.grad().to_vector<double>(); }

// Passes the gradient on and counts how often it was asked.
Tensor counted(const Tensor& x, int& calls) {
  return autograd::record("counted", x.clone(), {x}, [&calls](const Tensor& g, Needs) {
    ++calls;
    return Gradients{g};
  });
}

// Gives its input no gradient.
Tensor without_gradient(const Tensor& x) {
  return autograd::record("without", x.clone(), {x}, [](const Tensor&, Needs) { return Gradients{Tensor()}; });
}

// Notes in which order leaves are finished, and gives them twice their gradient.
struct NotingObserver : autograd::LeafObserver {
  std::vector<std::size_t> finished;
  std::vector<int> calls_before;  // of `counted`, when a leaf was finished
  int passes = 0;
  const int* calls = nullptr;
  Tensor finish_leaf(std::size_t number, const Tensor& before, const Tensor& gradient) override {
    finished.push_back(number);
    if (calls != nullptr) calls_before.push_back(*calls);
    const Tensor twice = gradient * 2.0;
    return before.defined() ? before + twice : twice;
  }
  void end_pass() override { ++passes; }
};

}  // namespace

TEST_CASE("observer: it gets a leaf's gradient once, when all of its uses have been differentiated") {
  const Tensor early = Tensor::full({2}, 3, {.dtype = DType::f64, .requires_grad = true});
  const Tensor late = Tensor::full({2}, 5, {.dtype = DType::f64, .requires_grad = true});
  const Tensor plain = Tensor::full({2}, 7, {.dtype = DType::f64, .requires_grad = true});
  int calls = 0;
  NotingObserver observer;
  observer.calls = &calls;
  autograd::observe_leaf(early, &observer, 10);
  autograd::observe_leaf(late, &observer, 11);
  const auto loss = [&] { return sum(counted(counted(early, calls) * early, calls) * late * plain + late); };
  loss().backward();
  CHECK(observer.finished == std::vector<std::size_t>{11, 10});
  CHECK(observer.calls_before == std::vector<int>{0, 2});  // the late leaf before the rest of the pass has run
  CHECK(observer.passes == 1);
  CHECK(grad_of(early) == Values{2 * 6 * 5 * 7, 2 * 6 * 5 * 7});
  CHECK(grad_of(late) == Values{2 * (9 * 7 + 1), 2 * (9 * 7 + 1)});
  CHECK(grad_of(plain) == Values{45, 45});
  loss().backward();
  CHECK(grad_of(late) == Values{4 * (9 * 7 + 1), 4 * (9 * 7 + 1)});
  CHECK(grad_of(plain) == Values{90, 90});
  // A frozen leaf and one without observer are not reported; a pass that reaches no observed leaf does not call it.
  Tensor(early).set_requires_grad(false);
  autograd::observe_leaf(late, nullptr);
  observer.finished.clear();
  sum(late * plain).backward();
  CHECK(observer.finished.empty());
  CHECK(observer.passes == 2);
  Tensor(early).set_requires_grad(true);
  autograd::observe_leaf(early, nullptr);
}

TEST_CASE("observer: an observed leaf behind a fused activation, a missing gradient or at the root is finished too") {
  const Tensor leaf = Tensor::full({1}, 0.5, {.dtype = DType::f64, .requires_grad = true});
  NotingObserver observer;
  autograd::observe_leaf(leaf, &observer, 1);
  tanh(leaf).backward();
  CHECK(grad_of(leaf)[0] == doctest::Approx(2 * (1 - std::tanh(0.5) * std::tanh(0.5))));
  leaf.set_grad({});
  // The second use gives no gradient.
  add(leaf * 3.0, without_gradient(leaf * 4.0)).backward();
  CHECK(grad_of(leaf) == Values{6});
  leaf.set_grad({});
  leaf.backward();
  CHECK(grad_of(leaf) == Values{2});
  CHECK(observer.finished.size() == 3);
  CHECK(observer.passes == 3);
  NotingObserver other;
  CHECK_THROWS_AS(autograd::observe_leaf(leaf, &other, 1), AutogradError);
  CHECK_THROWS_AS(autograd::observe_leaf(Tensor::ones({1}), &other, 1), AutogradError);
  autograd::observe_leaf(leaf, nullptr);
}
