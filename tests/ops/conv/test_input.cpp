#include "ops/conv/input.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "autograd/no_grad.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/output_and_gradients.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("an activation of the input has the bits and gradients of the separate step, with an output's options too") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (ConvInputOptions input : {ConvInputOptions{Activation::relu}, ConvInputOptions{Activation::leaky_relu, 0.1},
                                   ConvInputOptions{Activation::leaky_relu, -0.5}, ConvInputOptions{Activation::snake},
                                   ConvInputOptions{Activation::snake, 2}}) {
      CAPTURE(dtype);
      CAPTURE(input.activation == Activation::snake);
      CAPTURE(input.slope);
      Tensor x = random_f64({2, 16, 40}, 1).to(dtype), w = random_f64({16, 16, 3}, 2).to(dtype);
      const Tensor residual = random_f64({2, 16, 40}, 3).to(dtype);
      for (Tensor* leaf : {&x, &w}) *leaf = leaf->to(default_device()).set_requires_grad(true);
      const ConvOutputOptions output{.activation = Activation::leaky_relu, .slope = 0.2, .residual = residual.to(x.device())};
      std::vector<Tensor> leaves{x, w};
      const auto parameter = [&](std::uint64_t seed) {
        leaves.push_back(uniform_f64({16}, 0.5, 2, seed).to(dtype).to(default_device()).set_requires_grad(true));
        return leaves.back();
      };
      if (input.activation == Activation::snake) input.alpha = parameter(4);
      if (input.activation == Activation::snake && input.slope == 2) input.beta = parameter(5);
      const auto active = [&] {
        if (input.beta.defined()) return snake_beta(x, input.alpha, input.beta);
        if (input.alpha.defined()) return snake(x, input.alpha);
        return input.activation == Activation::relu ? relu(x) : leaky_relu(x, input.slope);
      };
      const auto down = [&] { return conv1d(x, w, {}, {.padding = 1}, output, input); };
      const auto expected = output_and_gradients(leaves, [&] { return conv1d(active(), w, {}, {.padding = 1}, output); });
      CHECK(output_and_gradients(leaves, down) == expected);
      const NoGradGuard no_grad;
      CHECK(values(down()) == expected[0]);
      CHECK(values(conv_transpose1d(x, w, {}, {.stride = 2}, {}, input)) ==
            values(conv_transpose1d(active(), w, {}, {.stride = 2})));
    }
  const Tensor x = random_f64({1, 2, 5}), w = random_f64({2, 2, 1});
  const auto refused = [&](const ConvInputOptions& input) {
    return error_of<Error>([&] { return conv1d(x, w, {}, {}, {}, input); });
  };
  CHECK(refused({Activation::tanh}) == "conv1d: expected none, relu, leaky_relu or snake as the input's activation, got tanh");
  CHECK(refused({Activation::snake}) == "conv1d: expected alpha (C_in) with snake as the input's activation, got none");
  CHECK(refused({.activation = Activation::relu, .alpha = w}) ==
        "conv1d: expected alpha and beta with snake alone as the input's activation, got them with another one");
  CHECK(error_of<Error>([&] { return conv1d({}, w, {}, {}, {}, {Activation::relu}); }) == "conv1d: x is undefined");
}
