#include "layers/streaming/module_stream.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "autograd/no_grad.hpp"
#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/dropout.hpp"
#include "layers/linear.hpp"
#include "layers/upsample.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor positions(std::int64_t first, std::int64_t count) {
  return Tensor::arange(static_cast<double>(first), static_cast<double>(first + count), 1.0, {DType::f32})
      .reshape({1, 1, count});
}

}  // namespace

TEST_CASE("held positions: advancing is following and keeping, also where the number changes") {
  layers::HeldPositions held;
  std::int64_t first = 0, before = 0;
  for (const auto& [added, kept] :
       {std::pair<std::int64_t, std::int64_t>{3, 2}, {2, 2}, {4, 2}, {0, 2}, {3, 4}, {1, 0}, {2, 2}}) {
    const Tensor all = held.advance(positions(first, added), kept);
    CHECK(max_difference(all, positions(first - before, before + added)) == 0);
    CHECK(held.size() == kept);
    first += added, before = kept;
  }
  CHECK(error_of<ShapeError>([&] {
          return held.advance(Tensor::ones({1, 2, 3}), 2);
        }) == "stream: expected positions like those before, (1, 1, 2), got (1, 2, 3)");
  CHECK(max_difference(held.followed_by(positions(first, 1)), positions(first - 2, 3)) == 0);
}

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

TEST_CASE("a side stream waits for the inputs of its own stream") {
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

TEST_CASE("the length goes second and back to the last place") {
  const Tensor x = random_f64({2, 3, 4, 5});
  CHECK(max_difference(layers::length_second(x), x.permute({0, 3, 1, 2})) == 0);
  CHECK(max_difference(layers::length_last(layers::length_second(x)), x) == 0);
  CHECK(layers::length_second(random_f64({2, 5})).shape() == Shape{2, 5});
}

TEST_CASE("a pointwise stream of a module with the channels last, and one for evaluation alone") {
  using Layout = ModuleStream::Layout;
  Linear linear({.in_features = 3, .out_features = 2, .dtype = DType::f64});
  layers::PointwiseStream stream(linear, {.layout = Layout::channels_last});
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 3, 5});
  CHECK(max_difference(stream.push(x, false), linear(x.transpose(1, 2)).transpose(1, 2)) <= kDoubleRounding);
  CHECK(stream.push(x.narrow(2, 0, 0), true).shape() == Shape{2, 2, 0});
  CHECK(stream.layout() == Layout::channels_last);
  Dropout dropout;
  layers::PointwiseStream evaluated(dropout, {.only_in_eval = true});
  CHECK(error_of<Error>([&] { return evaluated.push(x, false); }) ==
        "stream: expected polyphase::Dropout after eval(), got it in training");
  dropout.eval();
  CHECK(max_difference(evaluated.push(x, false), x) == 0);
}

TEST_CASE("layouts that go together, and those that do not") {
  using Layout = ModuleStream::Layout;
  ReLU relu;
  layers::PointwiseStream any(relu), first(relu, {.layout = Layout::channels_first}),
      last(relu, {.layout = Layout::channels_last});
  CHECK(layers::joined(Layout::any, any, relu) == Layout::any);
  CHECK(layers::joined(Layout::any, last, relu) == Layout::channels_last);
  CHECK(layers::joined(Layout::channels_first, any, relu) == Layout::channels_first);
  CHECK(layers::joined(Layout::channels_first, first, relu) == Layout::channels_first);
  CHECK_THROWS_WITH_AS((void)layers::joined(Layout::channels_last, first, relu),
                       "stream: polyphase::ReLU takes (N, C, L) where it gets (N, L, C); ChannelsLast goes between them",
                       NotImplemented);
  CHECK(layers::layout_of_channels(1) == Layout::channels_first);
  CHECK(layers::layout_of_channels(-2) == Layout::channels_first);
  CHECK(layers::layout_of_channels(2) == Layout::channels_last);
  CHECK(layers::layout_of_channels(-1) == Layout::channels_last);
  CHECK(!layers::layout_of_channels(0).has_value());
}
