#include "ops/conv_output.hpp"

#include <doctest/doctest.h>

#include "autograd/gradcheck.hpp"
#include "autograd/no_grad.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;

std::vector<double> values(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

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

/// The output and the gradients of all leaves that have one.
template <class Forward>
std::vector<std::vector<double>> output_and_gradients(const std::vector<Tensor>& leaves, const Forward& forward) {
  for (const Tensor& leaf : leaves) leaf.set_grad({});
  const Tensor y = forward();
  const Tensor gradient = random_f64(y.shape(), 9).to(y.dtype());
  y.backward(gradient);
  std::vector<std::vector<double>> all{values(y)};
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad().defined() ? values(leaf.grad()) : std::vector<double>());
  return all;
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

TEST_CASE("a residual unit has the bits and gradients of its steps") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const double scale : {1.0, 0.5})
      for (const bool batched : {true, false}) {
        CAPTURE(dtype);
        CAPTURE(scale);
        CAPTURE(batched);
        std::vector<Tensor> leaves{random_f64({2, 6, 21}, 1), random_f64({6, 6, 3}, 2), random_f64({6}, 3),
                                   random_f64({6, 6, 5}, 4)};
        if (!batched) leaves[0] = leaves[0].select(0, 0).clone();
        for (Tensor& leaf : leaves) leaf = leaf.to(dtype).to(default_device()).detach().set_requires_grad(true);
        const UnitConv1d first{leaves[1], leaves[2], 3, {Activation::leaky_relu, 0.25}},
            second{leaves[3], {}, 1, {Activation::relu}};
        const auto unit = [&] { return residual_unit(leaves[0], first, second, scale); };
        const auto steps = [&] {
          const Tensor middle = conv1d(leaky_relu(leaves[0], 0.25), leaves[1], leaves[2], {.padding = 3, .dilation = 3});
          return add_scaled(leaves[0], conv1d(relu(middle), leaves[3], {}, {.padding = 2}), scale);
        };
        const auto expected = output_and_gradients(leaves, steps);
        CHECK(output_and_gradients(leaves, unit) == expected);
        const NoGradGuard no_grad;
        CHECK(values(unit()) == expected[0]);
      }
  for (const DType dtype : {DType::f32, DType::f16}) {
    std::vector<Tensor> leaves{random_f64({2, 4, 40}, 1),   random_f64({4, 4, 7}, 2),    random_f64({4, 4, 1}, 3),
                               uniform_f64({4}, 0.5, 2, 4), uniform_f64({4}, 0.5, 2, 5), uniform_f64({4}, 0.5, 2, 6)};
    for (Tensor& leaf : leaves) leaf = leaf.to(dtype).to(default_device()).set_requires_grad(true);
    const UnitConv1d first{leaves[1], {}, 3, {Activation::snake, 0, leaves[3]}},
        second{leaves[2], {}, 1, {Activation::snake, 0, leaves[4], leaves[5]}};
    const auto expected = output_and_gradients(leaves, [&] {
      const Tensor middle = conv1d(snake(leaves[0], leaves[3]), leaves[1], {}, {.padding = 9, .dilation = 3});
      return leaves[0] + conv1d(snake_beta(middle, leaves[4], leaves[5]), leaves[2]);
    });
    CHECK(output_and_gradients(leaves, [&] { return residual_unit(leaves[0], first, second); }) == expected);
  }
  const Tensor x = random_f64({1, 2, 8}), w = random_f64({2, 2, 3}), even = random_f64({2, 2, 4}),
               other = random_f64({3, 2, 3});
  CHECK(error_of<ShapeError>([&] { return residual_unit(x, {w}, {even}); }) ==
        "residual_unit: expected an even dilation*(K - 1), got 1*3");
  CHECK(error_of<ShapeError>([&] { return residual_unit(x, {w}, {other}); }) ==
        "residual_unit: expected weights (C, C, K), got (2, 2, 3) and (3, 2, 3)");
  CHECK(error_of<Error>([&] { return residual_unit(x, {w}, {}); }) == "residual_unit: weight is undefined");
  CHECK(error_of<Error>([&] { return residual_unit({}, {w}, {w}); }) == "residual_unit: x is undefined");
  CHECK(error_of<Error>([&] {
          return residual_unit(x, {w, {}, 1, {Activation::tanh}}, {w});
        }) == "residual_unit: expected none, relu, leaky_relu or snake as the input's activation, got tanh");
  Tensor recorded = random_f64({2, 2, 3});
  recorded.set_requires_grad(true);
  CHECK(error_of<Error>([&] {
          return residual_unit(x, {w}, {recorded, {}, 1, {Activation::tanh}});
        }) == "residual_unit: expected none, relu, leaky_relu or snake as the input's activation, got tanh");
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
