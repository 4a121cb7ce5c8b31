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
  for (const DType dtype : {DType::f32, DType::f16})
    for (const bool is_depthwise : {false, true}) {
      CAPTURE(dtype);
      CAPTURE(is_depthwise);
      const std::int64_t groups = is_depthwise ? 4 : 1;
      std::vector<Tensor> leaves{random_f64({2, 4, 40}, 1),   random_f64({4, 4 / groups, 7}, 2), random_f64({4, 4, 1}, 3),
                                 uniform_f64({4}, 0.5, 2, 4), uniform_f64({4}, 0.5, 2, 5),       uniform_f64({4}, 0.5, 2, 6)};
      for (Tensor& leaf : leaves) leaf = leaf.to(dtype).to(default_device()).set_requires_grad(true);
      const UnitConv1d first{leaves[1], {}, 3, {Activation::snake, 0, leaves[3]}},
          second{leaves[2], {}, 1, {Activation::snake, 0, leaves[4], leaves[5]}};
      const auto expected = output_and_gradients(leaves, [&] {
        const Tensor middle =
            conv1d(snake(leaves[0], leaves[3]), leaves[1], {}, {.padding = 9, .dilation = 3, .groups = groups});
        return leaves[0] + conv1d(snake_beta(middle, leaves[4], leaves[5]), leaves[2]);
      });
      CHECK(output_and_gradients(leaves, [&] { return residual_unit(leaves[0], first, second); }) == expected);
    }
  const Tensor x = random_f64({1, 2, 8}), w = random_f64({2, 2, 3}), even = random_f64({2, 2, 4}),
               other = random_f64({3, 2, 3});
  CHECK(error_of<ShapeError>([&] { return residual_unit(x, {w}, {even}); }) ==
        "residual_unit: expected an even dilation*(K - 1), got 1*3");
  CHECK(error_of<ShapeError>([&] { return residual_unit(x, {w}, {other}); }) ==
        "residual_unit: expected weights (C, C, K), or (C, 1, K) and (C, C, K), got (2, 2, 3) and (3, 2, 3)");
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
