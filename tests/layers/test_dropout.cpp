#include "layers/dropout.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "ops/reduce.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("dropout layer: zeroes a share p while training and scales the rest") {
  Generator generator(3);
  const GeneratorGuard guard(generator);
  Dropout layer(0.2);
  const auto y = layer(Tensor::ones({10000})).to_vector<float>();
  std::size_t zeros = 0;
  for (const float value : y) {
    CHECK((value == 0.0F || value == 1.25F));
    zeros += value == 0.0F ? 1U : 0U;
  }
  CHECK(std::abs(static_cast<double>(zeros) - 2000) < 5 * std::sqrt(10000 * 0.2 * 0.8));
}

TEST_CASE("dropout layer: nothing happens in eval or with p = 0") {
  Dropout layer;
  layer.eval();
  const Tensor x = Tensor::randn({100});
  CHECK(layer(x).to_vector<float>() == x.to_vector<float>());
  layer.train();
  CHECK(max(layer(Tensor::ones({100}))).item() == 2);  // half of the elements by default
  Dropout none(0.0);
  CHECK(none(x).to_vector<float>() == x.to_vector<float>());
}

TEST_CASE("dropout layer: p out of range") {
  CHECK_THROWS_WITH_AS(Dropout(1.0), "Dropout: expected p in [0, 1), got 1", ShapeError);
  CHECK_THROWS_WITH_AS(Dropout(-0.5), "Dropout: expected p in [0, 1), got -0.5", ShapeError);
}

TEST_CASE("dropout in pieces: nothing in evaluation, an error while training") {
  Sequential net(Dropout(0.5), Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 3, .padding = 1}), Dropout(0.9));
  check_stream(net, {2, 3, 45});
  net.to(DType::f32);
  net.train();
  Stream stream(net);
  CHECK(error_of<Error>([&] {
          return stream.push(Tensor::ones({2, 3, 4}));
        }) == "stream: expected polyphase::Dropout after eval(), got it in training");
}
