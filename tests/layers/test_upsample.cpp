#include "layers/upsample.hpp"

#include <doctest/doctest.h>

#include "support/layer_gradcheck.hpp"

using namespace polyphase;

TEST_CASE("upsample layer: nearest and linear values by hand") {
  Upsample nearest({.scale_factor = 3});
  const Tensor x = Tensor::from_vector<float>({4, 8}, {1, 1, 2});
  CHECK(nearest(x).to_vector<float>() == std::vector<float>{4, 4, 4, 8, 8, 8});
  // Half-pixel centres: positions -0.25, 0.25, 0.75, 1.25, clamped to the row.
  Upsample linear({.scale_factor = 2, .mode = UpsampleMode::linear});
  CHECK(linear(x).to_vector<float>() == std::vector<float>{4, 5, 7, 8});
}

TEST_CASE("upsample layer: gradients") {
  Upsample linear({.scale_factor = 2, .mode = UpsampleMode::linear});
  CHECK(testing::layer_gradcheck(linear, {2, 1, 3}) == "");
  Upsample nearest({.scale_factor = 2});
  CHECK(testing::layer_gradcheck(nearest, {1, 2, 3}) == "");
}

TEST_CASE("pixel shuffle layer: channels become positions") {
  PixelShuffle1d layer(2);
  const Tensor x = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 4, 2});
  const Tensor y = layer(x);
  CHECK(y.shape() == Shape{1, 2, 4});
  CHECK(y.to_vector<float>() == std::vector<float>{1, 3, 2, 4, 5, 7, 6, 8});
  CHECK(testing::layer_gradcheck(layer, {1, 4, 2}) == "");
}

TEST_CASE("upsample layers: errors") {
  CHECK_THROWS_WITH_AS(Upsample({.scale_factor = 0}), "Upsample: expected scale_factor >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(PixelShuffle1d(0), "PixelShuffle1d: expected upscale_factor >= 1, got 0", ShapeError);
  PixelShuffle1d layer(2);
  CHECK_THROWS_AS((void)layer(Tensor::ones({1, 3, 2})), ShapeError);
}
