#include "autograd/engine.hpp"

#include <doctest/doctest.h>

#include <array>
#include <thread>
#include <vector>

#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using autograd::Gradients;
using autograd::Needs;
using autograd::Onward;

namespace {

using Values = std::vector<double>;

Values grad_of(const Tensor& leaf) { return leaf.grad().to_vector<double>(); }

// Passes the gradient on and counts its calls.
Tensor counted(const Tensor& x, int& calls) {
  return autograd::record("counted", x.clone(), {x}, [&calls](const Tensor& g, Needs) {
    ++calls;
    return Gradients{g};
  });
}

// Returns `gradient`, whatever the output's gradient is.
Tensor with_gradient(const Tensor& x, const Tensor& gradient) {
  return autograd::record("odd", x.clone(), {x}, [gradient](const Tensor&, Needs) { return Gradients{gradient}; });
}

// What a backward function was offered, and whether it takes it.
struct Offer {
  bool takes = true;
  bool has_derivative = false, has_sum = false;
};

// 2*x. Like a convolution, its backward function can apply the steps that come next.
Tensor doubled(const Tensor& x, Offer& offer) {
  return autograd::record("doubled", x.detach() * 2.0, {x}, [&offer](const Tensor& g, Needs needs) {
    const Onward onward = needs.onward();
    offer.has_derivative = onward.derivative != nullptr;
    offer.has_sum = onward.sum.defined();
    Tensor gradient = g * 2.0;
    if (!offer.takes) return Gradients{gradient};
    if (offer.has_derivative)
      backend_of(g.device())
          .map(derivative_of(onward.derivative->activation), gradient, std::array{onward.derivative->result.get(), gradient},
               {onward.derivative->slope, 0});
    if (offer.has_sum) gradient = onward.sum + gradient;
    needs.take(onward);
    return Gradients{gradient};
  });
}

}  // namespace

TEST_CASE("a product's gradients") {
  const Tensor a = leaf_of({2});
  const Tensor b = leaf_of({3});
  (a * b).backward();
  CHECK(grad_of(a) == Values{3});
  CHECK(grad_of(b) == Values{2});
}

TEST_CASE("an input used twice gets both gradients, and its node runs once") {
  const Tensor x = leaf_of({3});
  (x * x).backward();
  CHECK(grad_of(x) == Values{6});

  int calls = 0;
  const Tensor y = leaf_of({2});
  const Tensor shared = counted(y * 2.0, calls);
  (shared * shared + shared * 5.0).backward();  // 4y^2 + 10y
  CHECK(grad_of(y) == Values{26});
  CHECK(calls == 1);
}

TEST_CASE("a diamond recorded in an unusual order waits for all gradients") {
  const Tensor x = leaf_of({2});
  const Tensor a = x * 3.0;
  const Tensor b = square(a);  // recorded before c
  const Tensor c = a * 4.0;
  (c * b).backward();  // 4a^3 = 108x^3
  CHECK(grad_of(x) == Values{1296});
}

TEST_CASE("two backward passes accumulate") {
  const Tensor x = leaf_of({2});
  square(x).backward();
  const Tensor first = x.grad();
  square(x).backward();
  CHECK(grad_of(x) == Values{8});
  CHECK(first.to_vector<double>() == Values{4});
}

TEST_CASE("retain_graph keeps the graph, else a second pass says which part is gone") {
  const Tensor x = leaf_of({2});
  const Tensor kept = x * x;
  kept.backward({}, true);
  kept.backward({}, true);
  CHECK(grad_of(x) == Values{8});
  kept.backward();
  CHECK(grad_of(x) == Values{12});
  CHECK(error_of<AutogradError>([&] { return kept.backward(), 0; }) ==
        "backward: the graph of mul was freed by an earlier backward pass; pass retain_graph = true to keep it");
  CHECK(grad_of(x) == Values{12});

  const Tensor part = exp(x);
  sum(part).backward();
  CHECK(error_of<AutogradError>([&] { return (part * 2.0).backward(), 0; }) ==
        "backward: the graph of exp was freed by an earlier backward pass; pass retain_graph = true to keep it");
}

TEST_CASE("a tensor written in place after it was saved is noticed, and no gradient changes") {
  Tensor saved = Tensor::from_vector<double>({5});
  const Tensor x = leaf_of({2});
  const Tensor y = leaf_of({2});
  const Tensor out = y + x * saved;
  const std::uint64_t version = saved.storage().version();
  saved.fill_(7);
  CHECK(error_of<AutogradError>([&] { return out.backward(), 0; }) ==
        concat("mul: a tensor saved for backward was written in place since (version ", version + 1, ", expected ", version,
               ")"));
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(y.grad().defined());  // although its gradient was ready
}

TEST_CASE("the start of a pass is checked") {
  const Tensor x = leaf_of({1, 2});
  const Tensor y = x * 2.0;
  const auto run = [](const Tensor& root, const Tensor& gradient) { return [=] { return root.backward(gradient), 0; }; };
  CHECK(error_of<ShapeError>(run(y, {})) == "backward: expected a single element or a gradient (2,), got none");
  CHECK(error_of<ShapeError>(run(y, random_f64({3}))) == "backward: expected gradient (2,), got (3,)");
  CHECK(error_of<DTypeError>(run(y, Tensor::ones({2}))) == "backward: expected gradient of f64, got f32");
  CHECK(error_of<AutogradError>(run(random_f64({1}), {})) ==
        "backward: expected a tensor that requires grad, got one that does not");
  y.backward(Tensor::from_vector<double>({1, 10}));
  CHECK(grad_of(x) == Values{2, 20});
}

TEST_CASE("what a backward function returns is checked") {
  const Tensor x = leaf_of({1, 2});
  const auto run = [&](const Tensor& gradient) { return [=] { return sum(with_gradient(x, gradient)).backward(), 0; }; };
  const std::string on = " on " + to_string(default_device());
  CHECK(error_of<AutogradError>(run(random_f64({3}))) ==
        "backward of odd: expected a gradient (2,) f64" + on + " for input 0, got (3,) f64" + on);
  CHECK(error_of<AutogradError>(run(Tensor::ones({2}))) ==
        "backward of odd: expected a gradient (2,) f64" + on + " for input 0, got (2,) f32" + on);
  const Tensor y = autograd::record("short", x.clone(), {x}, [](const Tensor&, Needs) { return Gradients{}; });
  CHECK(error_of<AutogradError>([&] { return sum(y).backward(), 0; }) == "backward of short: expected 1 gradients, got 0");
  CHECK_FALSE(x.grad().defined());
  sum(with_gradient(x, {})).backward();  // undefined means zero: no gradient is passed on
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a leaf can be the root") {
  const Tensor x = leaf_of({5});
  x.backward();
  x.backward();
  CHECK(grad_of(x) == Values{2});
}

TEST_CASE("inputs that require no gradient get none") {
  const Tensor x = leaf_of({2});
  const Tensor constant = Tensor::from_vector<double>({3});
  (x * constant).backward();
  CHECK(grad_of(x) == Values{3});
  CHECK_FALSE(constant.grad().defined());
}

TEST_CASE("a leaf that was frozen after it was used gets no gradient") {
  const Tensor x = leaf_of({2});
  Tensor frozen = leaf_of({3});
  const Tensor product = x * frozen;
  frozen.set_requires_grad(false);
  product.backward();
  CHECK(grad_of(x) == Values{3});
  CHECK_FALSE(frozen.grad().defined());
}

TEST_CASE("passes of several threads add to the same leaf") {
  const Tensor x = leaf_of({2});
  constexpr int kThreads = 4, kPasses = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&x] {
      for (int i = 0; i < kPasses; ++i) (x * 3.0).backward();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(grad_of(x) == Values{3.0 * kThreads * kPasses});
}

TEST_CASE("every leaf's gradient is contiguous and its own") {
  const Tensor a = leaf_of({1, 2});
  const Tensor b = leaf_of({3, 4});
  const Tensor gradient = Tensor::from_vector<double>({1, 1});
  (a + b).backward(gradient);  // add passes the same tensor to both inputs
  a.grad().fill_(9);
  CHECK(grad_of(b) == Values{1, 1});
  CHECK(gradient.to_vector<double>() == Values{1, 1});

  const Tensor matrix = leaf_f64({2, 3});
  matrix.transpose(0, 1).backward(random_f64({3, 2}));
  CHECK(matrix.grad().is_contiguous());
  sum(matrix).backward();
  CHECK(matrix.grad().is_contiguous());

  const Tensor c = leaf_of({1});
  const Tensor d = leaf_of({2});
  square(cat({c, d})).backward(Tensor::from_vector<double>({1, 1}));
  CHECK(c.grad().storage().bytes() == sizeof(double));  // not a view of the joint gradient
}

TEST_CASE("gradients stay off the tape") {
  const Tensor x = leaf_of({2});
  (x * x).backward();
  CHECK_FALSE(x.grad().requires_grad());
}

TEST_CASE("saved memory is freed while the pass goes") {
  constexpr std::int64_t kLength = 10'000;
  constexpr int kSteps = 20;
  const Allocator& allocator = backend_of(default_device()).allocator();
  const Tensor x = Tensor::ones({kLength}, {.dtype = DType::f64, .requires_grad = true});
  Tensor y = x;
  std::vector<std::size_t> live;
  for (int i = 0; i < kSteps; ++i) {
    y = exp(y * 0.1);
    y = autograd::record("probe", y.clone(), {y}, [&](const Tensor& g, Needs) {
      live.push_back(allocator.stats().live_bytes);
      return Gradients{g};
    });
  }
  Tensor loss = sum(y);
  y = Tensor();
  loss.backward();
  REQUIRE(live.size() == kSteps);
  // Each backward step frees at least the output that exp saved.
  CHECK(live.front() - live.back() >= (kSteps - 2) * kLength * sizeof(double));
  CHECK(x.grad().defined());
}

TEST_CASE("what was saved goes even while a tensor of the graph is held") {
  constexpr std::int64_t kLength = 10'000;
  const Allocator& allocator = backend_of(default_device()).allocator();
  const Tensor x = Tensor::ones({kLength}, {.dtype = DType::f64, .requires_grad = true});
  const Tensor held = square(x * 2.0);  // saves the product, which has no other owner
  const std::size_t before = allocator.stats().live_bytes;
  sum(held).backward();
  x.set_grad({});
  const std::size_t freed = before - allocator.stats().live_bytes;
  CHECK(freed >= kLength * sizeof(double));
  CHECK(freed < 2 * kLength * sizeof(double));  // the allocator rounds up
  Tensor loss;
  const std::size_t without = allocator.stats().live_bytes;
  {
    const Tensor leaf = Tensor::ones({kLength}, {.dtype = DType::f64, .requires_grad = true});
    loss = sum(square(leaf));
    loss.backward();
  }
  CHECK(allocator.stats().live_bytes < without + kLength * sizeof(double));  // the leaf's gradient is freed too
}

TEST_CASE("a long chain is run through") {
  const Tensor x = leaf_of({1});
  Tensor y = x;
  for (int i = 0; i < 20'000; ++i) y = y + 1.0;
  y.backward();
  CHECK(grad_of(x) == Values{1});
}

TEST_CASE("recording is off inside and back on afterwards") {
  const Tensor x = leaf_of({1});
  bool inside = true;
  autograd::record("look", x.clone(), {x}, [&inside](const Tensor& g, Needs) {
    inside = grad_enabled();
    return Gradients{g};
  }).backward();
  CHECK_FALSE(inside);
  CHECK(grad_enabled());
}

TEST_CASE("a gradient may come through an activation that nothing else follows") {
  for (const bool takes : {true, false})
    for (const bool retain : {false, true}) {
      Offer offer{takes};
      const Tensor x = leaf_of({-1, 3});
      const Tensor out = sum(doubled(leaky_relu(square(x) * x, 0.25), offer));
      out.backward({}, retain);
      CHECK(offer.has_derivative);
      CHECK_FALSE(offer.has_sum);
      CHECK(grad_of(x) == Values{1.5, 54});
      if (retain) {
        out.backward();
        CHECK(grad_of(x) == Values{3, 108});
      }
      const std::string error = error_of<AutogradError>([&] { return out.backward(), 0; });
      CHECK(error == "backward: the graph of sum was freed by an earlier backward pass; pass retain_graph = true to keep it");
    }
}

TEST_CASE("no derivative is offered where the activation has other gradients, or its result was changed") {
  Offer offer;
  const Tensor x = leaf_of({-1, 3});
  Tensor y = relu(x);
  const Tensor first = doubled(y, offer), second = square(y);
  sum(first + second).backward();
  CHECK_FALSE(offer.has_derivative);
  CHECK(offer.has_sum);  // the square's gradient
  CHECK(grad_of(x) == Values{0, 8});

  x.set_grad({});
  y = relu(x);
  const Tensor before = square(y);  // its gradient is computed later
  sum(before + doubled(y, offer)).backward();
  CHECK_FALSE(offer.has_derivative);
  CHECK_FALSE(offer.has_sum);
  CHECK(grad_of(x) == Values{0, 8});

  y = relu(x);
  const Tensor out = sum(doubled(y, offer));
  y.detach().fill_(1);
  const std::string error = error_of<AutogradError>([&] { return out.backward(), 0; });
  CHECK(error.substr(0, 67) == "relu: a tensor saved for backward was written in place since (versi");
  CHECK_FALSE(offer.has_derivative);
}

TEST_CASE("a gradient may include the sum of earlier ones") {
  for (const bool takes : {true, false}) {
    Offer offer{takes};
    const Tensor x = leaf_of({-1, 3}), y = x * 3.0;
    sum(y + doubled(relu(y), offer)).backward();
    CHECK(offer.has_derivative);
    CHECK(offer.has_sum);
    CHECK(grad_of(x) == Values{3, 9});

    const Tensor leaf = leaf_of({-1, 3});
    sum(leaf + doubled(relu(leaf), offer)).backward();
    CHECK(offer.has_sum);
    CHECK(grad_of(leaf) == Values{1, 3});

    const Tensor plain = leaf_of({-1, 3});
    sum(plain + doubled(plain, offer)).backward();
    CHECK_FALSE(offer.has_derivative);
    CHECK(offer.has_sum);
    CHECK(grad_of(plain) == Values{3, 3});
  }
}

TEST_CASE("gradients are added in the same order, whichever function applies the steps") {
  for (const bool takes : {true, false}) {
    Offer offer{takes};
    const Tensor x = leaf_of({-1, 3}), y = x * 3.0;
    const Tensor active = relu(y), between = square(y);  // recorded after the activation, so its gradient is ready earlier
    sum(between + doubled(active, offer) + y).backward();
    CHECK(offer.has_derivative);
    CHECK_FALSE(offer.has_sum);
    CHECK(grad_of(x) == Values{-15, 63});
  }
}

TEST_CASE("no sum is offered past an activation whose argument gets another gradient of the same node") {
  Offer offer;
  const Tensor x = leaf_of({-1, 3}), active = relu(x);
  // 2*active + 5*x
  const Tensor both =
      autograd::record("both", active.detach() * 2.0 + x.detach() * 5.0, {active, x}, [&offer](const Tensor& g, Needs needs) {
        const Onward onward = needs.onward();
        offer.has_derivative = onward.derivative != nullptr;
        offer.has_sum = onward.sum.defined();
        return Gradients{g * 2.0, g * 5.0};
      });
  sum(both + x * 3.0).backward();
  CHECK(offer.has_derivative);
  CHECK_FALSE(offer.has_sum);
  CHECK(grad_of(x) == Values{8, 10});
}

TEST_CASE("nothing is offered where the gradient is not wanted, or outside a pass") {
  Offer offer{.takes = true, .has_derivative = true, .has_sum = true};
  const Tensor x = leaf_of({2});
  autograd::record("product", x.detach() * 5.0, {Tensor::from_vector<double>({5}), x}, [&](const Tensor& g, Needs needs) {
    offer.has_derivative = needs.onward().derivative != nullptr;
    offer.has_sum = needs.onward().sum.defined();
    return Gradients{{}, g * 5.0};
  }).backward();
  CHECK_FALSE(offer.has_derivative);
  CHECK_FALSE(offer.has_sum);
  CHECK(grad_of(x) == Values{5});
  CHECK(Needs().onward().derivative == nullptr);
  CHECK_FALSE(Needs().is_differentiated());
}
