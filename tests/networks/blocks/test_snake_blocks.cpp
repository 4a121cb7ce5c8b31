#include "networks/blocks/snake_blocks.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "ops/conv.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("three residual units, with the names of either family") {
  Sequential block;
  append_residual_units(block, {.channels = 4, .groups = 4});
  CHECK(StateOf(block).size() == 18);
  CHECK(StateOf(block)["2.block.1.weight"].shape() == Shape{4, 1, 7});
  CHECK(StateOf(block)["0.block.3.weight"].shape() == Shape{4, 4, 1});
  CHECK(StateOf(block).has("1.block.2.alpha"));
  Sequential other;
  append_residual_units(other, {.channels = 4, .name = "layers"});
  CHECK(StateOf(other)["2.layers.1.weight"].shape() == Shape{4, 4, 7});
}

TEST_CASE("a residual unit is the formula") {
  manual_seed(4);
  Sequential block;
  append_residual_units(block, {.channels = 3});
  block.to(DType::f64);
  const StateOf state(block);
  const Tensor x = random_f64({2, 3, 40});
  Tensor expected = x;
  const std::int64_t dilations[] = {1, 3, 9};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto of = [&](const char* name) { return state[concat(i, ".block.", name)]; };
    Tensor y = conv1d(plain_snake(expected, of("0.alpha")), of("1.weight"), of("1.bias"),
                      {.padding = 3 * dilations[i], .dilation = dilations[i]});
    y = conv1d(plain_snake(y, of("2.alpha")), of("3.weight"), of("3.bias"));
    expected = expected + y;
  }
  CHECK(relative_difference(f64_values(block(x).detach()), f64_values(expected)) < kDoubleRounding);
}

TEST_CASE("lengths: an odd rate drops a sample unless it keeps the length") {
  const Tensor x = Tensor::ones({1, 2, 6});
  CHECK(upsampling(2, 1, 4)(x).size(2) == 24);
  CHECK(upsampling(2, 1, 5)(x).size(2) == 29);
  CHECK(upsampling(2, 1, 5, true)(x).size(2) == 30);
  CHECK(upsampling(2, 1, 4, true)(x).size(2) == 24);
  CHECK(downsampling(2, 4, 3)(x).shape() == Shape{1, 4, 2});
  CHECK(same_conv(2, 3, 7)(x).shape() == Shape{1, 3, 6});
}

TEST_CASE("products of rates end at the limit") {
  CHECK(product_of_rates({8, 5, 4, 2}) == 320);
  CHECK(product_of_rates({kLargestFrame}) == kLargestFrame);
  CHECK(product_of_rates({kLargestFrame, 2}) == kLargestFrame + 1);
  CHECK(product_of_rates({std::int64_t{1} << 31, std::int64_t{1} << 31, std::int64_t{1} << 31}) == kLargestFrame + 1);
}

TEST_CASE("keys that only an encoder needs") {
  CHECK(is_of_encoder("encoder.block.0.bias"));
  CHECK(is_of_encoder("quantizer.quantizers.0.in_proj.weight_g"));
  CHECK(!is_of_encoder("quantizer.quantizers.0.out_proj.weight_g"));
  CHECK(!is_of_encoder("decoder.model.0.bias"));
}
