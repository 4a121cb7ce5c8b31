#include "layers/recompute.hpp"

#include <doctest/doctest.h>

#include "autograd/autocast.hpp"
#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/dropout.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "tensor/random.hpp"

using namespace polyphase;

namespace {

using Values = std::vector<std::vector<float>>;

struct Run {
  std::vector<float> y, dx;
  Values gradients;
  bool operator==(const Run&) const = default;
};

// Output and gradients of a network with random numbers, behind and before other operations.
template <class Apply>
Run run_of(const Apply& apply, bool follows_x) {
  Generator generator(3);
  const GeneratorGuard guard(generator);
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 4, .kernel_size = 3, .padding = 1}), LeakyReLU(0.1), Dropout(0.5),
                 Conv1d({.in_channels = 4, .out_channels = 2, .kernel_size = 3, .padding = 1}));
  Tensor x = Tensor::randn({3, 2, 9});
  x.set_requires_grad(follows_x);
  const Tensor y = apply(net, x * 2.0);
  const Tensor other = Tensor::rand({3, 2, 9});  // recompute() must draw as many numbers as the module
  sum(square(y) * other).backward();
  Run run{y.to_vector<float>(), follows_x ? x.grad().to_vector<float>() : std::vector<float>{}, {}};
  for (const Tensor& parameter : net.parameters()) run.gradients.push_back(parameter.grad().to_vector<float>());
  return run;
}

Tensor plain(Module& net, const Tensor& x) { return net(x); }

}  // namespace

TEST_CASE("recompute: the same bits, forward and backward, with random numbers") {
  for (const bool follows_x : {true, false}) CHECK(run_of(recompute, follows_x) == run_of(plain, follows_x));
}

TEST_CASE("recompute: under autocast") {
  const auto under = [](Tensor (*apply)(Module&, const Tensor&)) {
    return [apply](Module& net, const Tensor& x) {
      const AutocastGuard autocast(DType::bf16);
      return apply(net, x).to(DType::f32);
    };
  };
  CHECK(run_of(under(recompute), true) == run_of(under(plain), true));
}

TEST_CASE("recompute: nothing is recorded where nothing follows gradients") {
  Sequential net(Conv1d({.in_channels = 1, .out_channels = 1, .kernel_size = 1}));
  net.set_requires_grad(false);
  CHECK(!recompute(net, Tensor::ones({1, 1, 2})).requires_grad());
}
