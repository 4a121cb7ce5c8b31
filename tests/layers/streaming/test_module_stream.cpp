#include "layers/streaming/module_stream.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "autograd/no_grad.hpp"
#include "layers/activations.hpp"
#include "layers/upsample.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor positions(std::int64_t first, std::int64_t count) {
  return Tensor::arange(static_cast<double>(first), static_cast<double>(first + count), 1.0, {DType::f32})
      .reshape({1, 1, count});
}

}  // namespace

TEST_CASE("held positions: what is kept comes before what follows") {
  layers::HeldPositions held;
  CHECK(held.is_empty());
  CHECK(held.size() == 0);
  CHECK(held.followed_by(positions(0, 3)).to_vector<float>() == std::vector<float>{0, 1, 2});
  held.keep(positions(0, 2));
  CHECK(held.size() == 2);
  CHECK(held.followed_by(positions(2, 2)).to_vector<float>() == std::vector<float>{0, 1, 2, 3});
  CHECK(held.followed_by(positions(2, 0)).to_vector<float>() == std::vector<float>{0, 1});
  held.clear();
  CHECK(held.is_empty());
}

TEST_CASE("held positions of one size stay in one place, and are a copy") {
  layers::HeldPositions held;
  Tensor x = positions(5, 2);
  held.keep(x);
  const void* place = held.followed_by(positions(0, 0)).raw();
  x.fill_(9);
  CHECK(held.followed_by(positions(7, 1)).to_vector<float>() == std::vector<float>{5, 6, 7});
  held.keep(positions(7, 2));
  CHECK(held.followed_by(positions(0, 0)).raw() == place);
  held.keep(positions(7, 3));
  CHECK(held.size() == 3);
}

TEST_CASE("a pointwise stream depends on its own position alone") {
  ReLU relu;
  layers::PointwiseStream stream(relu);
  const NoGradGuard no_grad;
  CHECK(stream.push(positions(-2, 4), false).to_vector<float>() == std::vector<float>{0, 0, 0, 1});
  CHECK(stream.push(positions(0, 0), true).shape() == Shape{1, 1, 0});
  CHECK(stream.inputs_of({3, 5}).first == 3);
  CHECK(stream.inputs_of({3, 5}).last == 5);
  CHECK(stream.rate().up == 1);
}

TEST_CASE("a neighbour stream waits for the inputs behind its own") {
  Upsample linear({.scale_factor = 2, .mode = UpsampleMode::linear});
  layers::NeighbourStream stream(linear, {.left = 1, .right = 1, .up = 2});
  const NoGradGuard no_grad;
  CHECK(stream.push(positions(0, 1), false).shape() == Shape{1, 1, 0});
  CHECK(stream.push(positions(1, 2), false).to_vector<float>() == std::vector<float>{0, 0.25, 0.75, 1.25});
  CHECK(stream.push(positions(3, 1), true).to_vector<float>() == std::vector<float>{1.75, 2.25, 2.75, 3});
  CHECK(stream.inputs_of({-1, 4}).first == -2);
  CHECK(stream.inputs_of({-1, 4}).last == 3);
  stream.reset();
  CHECK(stream.push(positions(4, 1), true).to_vector<float>() == std::vector<float>{4, 4});
}
