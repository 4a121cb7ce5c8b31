#include "layers/embedding.hpp"

#include <doctest/doctest.h>

#include "layers/containers/channels_last.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/stream.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("Embedding: its name, its rows, its gradient, its errors") {
  Embedding layer({.num_embeddings = 3, .embedding_dim = 2, .dtype = DType::f64});
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 1);
  CHECK(state[0].first == "weight");
  CHECK(state[0].second.shape() == Shape{3, 2});
  const Tensor y = layer(Tensor::from_vector<std::int64_t>({2, 1}));
  CHECK(testing::max_difference(y.narrow(0, 1, 1), state[0].second.narrow(0, 1, 1)) == 0);
  y.backward(Tensor::ones({2, 2}, {.dtype = DType::f64}));
  CHECK(layer.parameters()[0].grad().to_vector<double>() == std::vector<double>{0, 0, 1, 1, 1, 1});
  CHECK_THROWS_WITH_AS(Embedding({.num_embeddings = 0, .embedding_dim = 2}), "Embedding: expected num_embeddings >= 1, got 0",
                       ShapeError);
  CHECK_THROWS_WITH_AS(Embedding({.num_embeddings = 2, .embedding_dim = 2, .dtype = DType::i64}),
                       "Embedding: expected a floating-point dtype, got i64", DTypeError);
}

TEST_CASE("embedding in pieces: indices (N, L) before convolutions, and rows of them (N, R, L)") {
  manual_seed(9);
  const auto codes = [](const Shape& shape) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(i * i % 11);
    return Tensor::from_vector(values, shape);
  };
  ChannelsLast rows(Embedding({.num_embeddings = 11, .embedding_dim = 5}));
  CHECK(rows(codes({2, 3, 45})).shape() == Shape{2, 3, 5, 45});
  check_stream_of(rows, codes({2, 3, 45}));
  Sequential net(ChannelsLast(Embedding({.num_embeddings = 11, .embedding_dim = 5})),
                 Conv1d({.in_channels = 5, .out_channels = 4, .kernel_size = 7, .padding = 3}));
  for (const DType dtype : {DType::f32, DType::f64}) {
    net.to(dtype);
    CHECK(net(codes({2, 45})).shape() == Shape{2, 4, 45});
    check_stream_of(net, codes({2, 45}));
  }
}
