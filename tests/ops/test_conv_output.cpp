#include "ops/conv_output.hpp"

#include <doctest/doctest.h>

#include "autograd/gradcheck.hpp"
#include "autograd/no_grad.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/output_and_gradients.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;

/// conv1d or, if `up`, conv_transpose1d of `leaves` (x, w, b, alpha, beta, residual). Both keep the length.
Tensor convolved(const std::vector<Tensor>& leaves, bool up, const ConvOutputOptions* output) {
  const Tensor &x = leaves[0], &w = leaves[1], &b = leaves[2];
  if (output == nullptr) return up ? conv_transpose1d(x, w, b, {.padding = 1}) : conv1d(x, w, b, {.padding = 1});
  return up ? conv_transpose1d(x, w, b, {.padding = 1}, *output) : conv1d(x, w, b, {.padding = 1}, *output);
}

/// The same with one operation for each step.
Tensor in_steps(const std::vector<Tensor>& leaves, bool up, const ConvOutputOptions& output) {
  Tensor y = convolved(leaves, up, nullptr);
  if (output.activation == Activation::relu) y = relu(y);
  if (output.activation == Activation::leaky_relu) y = leaky_relu(y, output.slope);
  if (output.activation == Activation::tanh) y = tanh(y);
  if (output.activation == Activation::snake)
    y = output.beta.defined() ? snake_beta(y, output.alpha, output.beta) : snake(y, output.alpha);
  return output.residual.defined() ? add_scaled(output.residual, y, output.scale) : y;
}

std::vector<Tensor> output_leaves(DType dtype, bool batched = true) {
  std::vector<Tensor> leaves{random_f64({2, 6, 11}, 1),   random_f64({6, 6, 3}, 2),    random_f64({6}, 3),
                             uniform_f64({6}, 0.5, 2, 4), uniform_f64({6}, 0.5, 2, 5), random_f64({2, 6, 11}, 6)};
  if (!batched) leaves[0] = leaves[0].select(0, 0).clone(), leaves[5] = leaves[5].select(0, 0).clone();
  for (Tensor& leaf : leaves) leaf = leaf.to(dtype).detach().set_requires_grad(true);
  return leaves;
}

std::vector<ConvOutputOptions> outputs_of(const std::vector<Tensor>& leaves) {
  std::vector<ConvOutputOptions> all;
  for (const double scale : {1.0, 0.3})
    for (const Tensor& residual : {Tensor(), leaves[5]}) {
      if (scale != 1 && !residual.defined()) continue;
      for (const Activation plain : {Activation::none, Activation::relu, Activation::leaky_relu, Activation::tanh})
        all.push_back({.activation = plain, .residual = residual, .scale = scale});
      all.push_back({.activation = Activation::leaky_relu, .slope = 0.25, .residual = residual, .scale = scale});
      all.push_back({.activation = Activation::leaky_relu, .slope = -0.5, .residual = residual, .scale = scale});
      all.push_back({.activation = Activation::snake, .alpha = leaves[3], .residual = residual, .scale = scale});
      all.push_back(
          {.activation = Activation::snake, .alpha = leaves[3], .beta = leaves[4], .residual = residual, .scale = scale});
    }
  return all;
}

}  // namespace

TEST_CASE("an activation and a residual in the options have the bits and gradients of the separate steps") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const bool batched : {true, false}) {
      const std::vector<Tensor> leaves = output_leaves(dtype, batched);
      for (const bool up : {false, true})
        for (const ConvOutputOptions& output : outputs_of(leaves)) {
          CAPTURE(dtype);
          CAPTURE(batched);
          CAPTURE(up);
          CAPTURE(static_cast<int>(output.activation));
          CAPTURE(output.residual.defined());
          const auto together = output_and_gradients(leaves, [&] { return convolved(leaves, up, &output); });
          CHECK(together == output_and_gradients(leaves, [&] { return in_steps(leaves, up, output); }));
          const NoGradGuard no_grad;
          CHECK(values(convolved(leaves, up, &output)) == together[0]);
        }
    }
}

TEST_CASE("a residual unit's average has the bits and gradients of the separate steps") {
  const auto leaf = [](const Shape& shape, std::uint64_t seed) { return random_f64(shape, seed).set_requires_grad(true); };
  const Tensor x = leaf({2, 4, 16}, 1), other = leaf({2, 4, 16}, 2), w = leaf({4, 4, 3}, 3), b = leaf({4}, 4);
  const UnitConv1d first{w, b, 2, {Activation::leaky_relu, 0.1}}, second{w, b, 1, {Activation::leaky_relu, 0.1}};
  const std::array leaves{x, other, w, b};
  const auto values = [&](const Tensor& y) {
    for (Tensor each : leaves) each.set_grad({});
    sum(square(y)).backward();
    std::vector<std::vector<double>> all{y.to_vector<double>()};
    for (const Tensor& each : leaves) all.push_back(each.grad().to_vector<double>());
    return all;
  };
  const auto in_steps = [&](double divisor, Activation activation, double slope) {
    return average_of(std::array{other, residual_unit(x, first, second)}, divisor, activation, slope);
  };
  CHECK(values(residual_unit(x, first, second, 1, {other, 3})) == values(in_steps(3, Activation::none, 0)));
  CHECK(values(residual_unit(x, first, second, 1, {other, 1, Activation::leaky_relu, 0.2})) ==
        values(in_steps(1, Activation::leaky_relu, 0.2)));
  CHECK_THROWS_WITH_AS(static_cast<void>(residual_unit(x, first, second, 1, AverageWith{})), doctest::Contains("average.other"),
                       Error);
  CHECK_THROWS_AS(static_cast<void>(residual_unit(x, first, second, 1, {other.narrow(2, 0, 8)})), ShapeError);
}

TEST_CASE("an activation and a residual in the options: gradients agree with differences") {
  const std::vector<Tensor> leaves = output_leaves(DType::f64);
  const auto check = [&](const Inputs& inputs, const auto& output_of) {
    for (const bool up : {false, true})
      CHECK(gradcheck(
                [&](const Inputs& in) {
                  const ConvOutputOptions output = output_of(in);
                  return convolved(in, up, &output);
                },
                inputs) == "");
  };
  check({leaves[0], leaves[1], leaves[2], leaves[3], leaves[4], leaves[5]}, [](const Inputs& in) {
    return ConvOutputOptions{.activation = Activation::snake, .alpha = in[3], .beta = in[4], .residual = in[5], .scale = 0.5};
  });
  check({leaves[0], leaves[1], leaves[2], leaves[3]},
        [](const Inputs& in) { return ConvOutputOptions{.activation = Activation::snake, .alpha = in[3]}; });
  check({leaves[0], leaves[1], leaves[2], leaves[5]},
        [](const Inputs& in) { return ConvOutputOptions{.activation = Activation::tanh, .residual = in[3]}; });
  // The residual may be the input; its gradient is the sum of both.
  check({leaves[0], leaves[1], leaves[2]},
        [](const Inputs& in) { return ConvOutputOptions{.activation = Activation::tanh, .residual = in[0], .scale = 2}; });
}

TEST_CASE("options of the output that have no meaning are refused") {
  const Tensor x = random_f64({2, 3, 7}, 1), w = random_f64({4, 3, 3}, 2), alpha = uniform_f64({4}, 0.5, 2, 3);
  const auto refused = [&](const ConvOutputOptions& output) {
    return error_of<Error>([&] { return conv1d(x, w, {}, {.padding = 1}, output); });
  };
  CHECK(refused({.activation = Activation::snake}) == "conv1d: expected alpha (C_out) with activation snake, got none");
  CHECK(refused({.activation = Activation::snake, .beta = alpha}) ==
        "conv1d: expected alpha (C_out) with activation snake, got none");
  CHECK(refused({.activation = Activation::relu, .alpha = alpha}) ==
        "conv1d: expected alpha and beta with activation snake alone, got them with another activation");
  CHECK(refused({.beta = alpha}) ==
        "conv1d: expected alpha and beta with activation snake alone, got them with another activation");
  CHECK(refused({.scale = 0.5}) == "conv1d: expected a residual with scale 0.5, got none");
  CHECK(refused({.residual = x}) == "conv1d: expected a residual of the output's shape (2, 4, 7), got (2, 3, 7)");
  CHECK(refused({.activation = Activation::snake, .alpha = random_f64({3})}).find("expected alpha (C=4), got (3,)") !=
        std::string::npos);
  CHECK(error_of<DTypeError>([&] {
          return conv1d(x, w, {}, {.padding = 1}, {.residual = random_f64({2, 4, 7}).to(DType::f32)});
        }) == "conv1d: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<DeviceError>([&] {
          return conv_transpose1d(x.to(DType::f32).cpu(), Tensor::zeros({3, 4, 3}, {.device = Device::cpu()}), {},
                                  {.padding = 1}, {.residual = elsewhere({2, 4, 7}, DType::f32)});
        }) == "conv_transpose1d: expected tensors on one device, got cpu and cuda:0");
  CHECK(error_of<Error>([&] { return conv1d(Tensor(), w, {}, {}, {.activation = Activation::relu}); }) ==
        "conv1d: x is undefined");
  CHECK(error_of<Error>([&] { return conv1d(x, Tensor(), {}, {}, {.activation = Activation::relu}); }) ==
        "conv1d: weight is undefined");
}
