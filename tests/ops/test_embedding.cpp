#include "ops/embedding.hpp"

#include <doctest/doctest.h>

#include "autograd/gradcheck.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor index_of(const std::vector<std::int64_t>& values, const Shape& shape) { return Tensor::from_vector(values, shape); }

}  // namespace

TEST_CASE("embedding takes rows, for indices of any shape") {
  const Tensor weight = Tensor::from_vector<double>({0, 1, 10, 11, 20, 21}, {3, 2});
  const Tensor y = embedding(index_of({2, 0, 2, 1, 1, 0}, {1, 2, 3}), weight);
  CHECK(y.shape() == Shape{1, 2, 3, 2});
  CHECK(y.to_vector<double>() == std::vector<double>{20, 21, 0, 1, 20, 21, 10, 11, 10, 11, 0, 1});
  CHECK(embedding(index_of({1}, {}), weight).to_vector<double>() == std::vector<double>{10, 11});
  CHECK(embedding(index_of({1, 2, 0, 2}, {2, 2}).transpose(0, 1), weight.transpose(0, 1).contiguous().transpose(0, 1))
            .to_vector<double>() == std::vector<double>{10, 11, 0, 1, 20, 21, 20, 21});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    CHECK(max_difference(embedding(index_of({1, 2}, {2}), weight.to(dtype)), weight.narrow(0, 1, 2)) == 0);
  CHECK(embedding(index_of({}, {2, 0}), weight).shape() == Shape{2, 0, 2});
  CHECK(embedding(index_of({0}, {1}), random_f64({1, 0})).shape() == Shape{1, 0});
}

TEST_CASE("embedding: gradients of rows taken several times add up") {
  const Tensor index = index_of({2, 0, 2, 2}, {2, 2});
  CHECK(gradcheck([&](const std::vector<Tensor>& in) { return embedding(index, in[0]); }, {leaf_f64({4, 3})}) == "");
  CHECK(gradcheck([&](const std::vector<Tensor>& in) { return embedding(index.narrow(0, 0, 0), in[0]); }, {leaf_f64({4, 3})}) ==
        "");
  const Tensor weight = leaf_f64({3, 1});
  embedding(index, weight).backward(Tensor::from_vector<double>({1, 2, 4, 8}, {2, 2, 1}));
  CHECK(weight.grad().to_vector<double>() == std::vector<double>{2, 0, 13});
}

TEST_CASE("embedding: errors") {
  const Tensor weight = random_f64({3, 2});
  const auto synchronized = [&](std::int64_t at) {
    return [&weight, at] { return embedding(index_of({0, at}, {2}), weight).to_vector<double>(); };
  };
  CHECK_THROWS_AS((void)synchronized(3)(), ShapeError);
  CHECK_THROWS_AS((void)synchronized(-1)(), ShapeError);
  CHECK(error_of<DTypeError>([&] { return embedding(weight, weight); }) == "embedding: expected an index of i64, got f64");
  CHECK(error_of<ShapeError>([&] { return embedding(index_of({0}, {1}), random_f64({3})); }) ==
        "embedding: expected weight (V, D), got (3,)");
}
