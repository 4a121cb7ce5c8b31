#include "ops/conv/input.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/no_grad.hpp"
#include "conv/algorithm.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "support/device.hpp"
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
}

TEST_CASE("a depthwise convolution of Snake has the bits of two steps: dilations, edges, numbers that are far or not finite") {
  const AlgorithmGuard by(default_device().is_cuda() ? Algorithm::depthwise : Algorithm::automatic);
  const NoGradGuard no_grad;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t D : {1, 3, 9})
      for (const std::int64_t L : {1, 40, 1027, 3001}) {
        CAPTURE(dtype);
        CAPTURE(D);
        CAPTURE(L);
        const auto there = [&](const Tensor& t) { return t.to(dtype).to(default_device()); };
        std::vector<double> numbers = random_f64({2 * 5 * L}, 1).to_vector<double>();
        const double special[] = {INFINITY, 3e4, -6e4, NAN, 0};
        for (std::size_t i = 0; i < numbers.size(); i += 97) numbers[i] = special[i / 97 % 5];
        const Tensor x = there(Tensor::from_vector(numbers, Shape{2, 5, L}));
        const Tensor w = there(random_f64({5, 1, 7}, 2)), bias = there(random_f64({5}, 3));
        // 1/beta of the last channels is infinite, not a number.
        const Tensor alpha = there(Tensor::from_vector(std::vector<double>{0.5, 1, 40, 0, 1}, Shape{5}));
        const Tensor beta = there(Tensor::from_vector(std::vector<double>{2, 1, -3, 0, NAN}, Shape{5}));
        const Conv1dOptions options{.padding = 3 * D, .dilation = D, .groups = 5};
        const ConvOutputOptions output{.activation = Activation::snake, .alpha = beta, .beta = alpha};
        const ConvInputOptions input{.activation = Activation::snake, .alpha = alpha, .beta = beta};
        const Tensor active = snake_beta(x, alpha, beta);
        const Tensor plain = conv1d(active, w, bias, options);
        CHECK(worst_difference(plain, conv1d(x, w, bias, options, {}, input)) == 0);
        CHECK(worst_difference(snake_beta(plain, beta, alpha), conv1d(x, w, bias, options, output, input)) == 0);
      }
}

TEST_CASE("an activation of the input: errors") {
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
