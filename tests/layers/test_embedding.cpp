#include "layers/embedding.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;

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
