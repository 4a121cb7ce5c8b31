#include "ops/embedding.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor index_of(const std::vector<std::int64_t>& values, const Shape& shape) { return Tensor::from_vector(values, shape); }

std::vector<std::int64_t> plain_nearest(const Tensor& x, const Tensor& codebook) {
  const std::vector<double> rows = x.to_vector<double>(), codes = codebook.to_vector<double>();
  const auto dimension = static_cast<std::size_t>(codebook.size(1));
  std::vector<std::int64_t> found;
  for (std::size_t r = 0; r < rows.size(); r += dimension) {
    std::size_t best = 0;
    double least = 1e300;
    for (std::size_t c = 0; c < codes.size(); c += dimension) {
      double distance = 0;
      for (std::size_t d = 0; d < dimension; ++d) distance += (rows[r + d] - codes[c + d]) * (rows[r + d] - codes[c + d]);
      if (distance < least) {
        least = distance;
        best = c / dimension;
      }
    }
    found.push_back(static_cast<std::int64_t>(best));
  }
  return found;
}

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

TEST_CASE("embedding_sum: the sum of embeddings, in order, and its gradients") {
  const Tensor codes = index_of({2, 0, 2, 1, 1, 0, 3, 3, 0, 1, 2, 0}, {2, 3, 2});
  const std::vector<Tensor> weights{random_f64({4, 5}), random_f64({3, 5}, 2), random_f64({4, 5}, 3)};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    std::vector<Tensor> tables;
    for (const Tensor& weight : weights) tables.push_back(weight.to(dtype));
    Tensor total;
    for (std::int64_t q = 0; q < 3; ++q) {
      const Tensor rows = embedding(codes.select(1, q), tables[static_cast<std::size_t>(q)]);
      total = q == 0 ? rows : total + rows;
    }
    CHECK(embedding_sum(codes, tables).shape() == Shape{2, 2, 5});
    CHECK(max_difference(embedding_sum(codes, tables), total) == 0);
  }
  CHECK(gradcheck([&](const std::vector<Tensor>& in) { return embedding_sum(codes, in); },
                  {leaf_f64({4, 2}), leaf_f64({3, 2}, 2), leaf_f64({4, 2}, 3)}) == "");
  CHECK(embedding_sum(codes.narrow(2, 0, 0), weights).shape() == Shape{2, 0, 5});
  CHECK(error_of<ShapeError>([&] { return embedding_sum(codes, {weights[0]}); }) ==
        "embedding_sum: expected codes (N, Q=1 >= 1, L), got (2, 3, 2)");
  CHECK(error_of<ShapeError>([&] {
          return embedding_sum(codes, {weights[0], random_f64({3, 4}), weights[2]});
        }) == "embedding_sum: expected weights (V, D) of one D, got (4, 5) and (3, 4)");
  CHECK(error_of<ShapeError>([&] { return embedding_sum(codes, {}); }) ==
        "embedding_sum: expected codes (N, Q=0 >= 1, L), got (2, 3, 2)");
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

TEST_CASE("nearest_code: the row with the smallest distance, as searched one by one") {
  const Tensor x = random_f64({3, 20, 5}, 1), codebook = random_f64({37, 5}, 2) * 0.8 + 0.1;
  const Tensor codes = nearest_code(x, codebook);
  CHECK(codes.shape() == Shape{3, 20});
  CHECK(codes.to_vector<std::int64_t>() == plain_nearest(x, codebook));
  CHECK(nearest_code(x.to(DType::f32), codebook.to(DType::f32)).to_vector<std::int64_t>() == plain_nearest(x, codebook));
  CHECK(!nearest_code(leaf_f64({2, 5}), codebook).requires_grad());
  CHECK(nearest_code(x.narrow(0, 0, 0), codebook).shape() == Shape{0, 20});
}

TEST_CASE("nearest_code: the first of equal rows; 16 bits are compared in f32") {
  const Tensor codebook = Tensor::from_vector<double>({5, 5, 1, 0, 1, 0, 0, 1}, {4, 2});
  CHECK(nearest_code(Tensor::from_vector<double>({0.9, 0.1}), codebook).item<std::int64_t>() == 1);
  // Scores of about 2000 that differ by 1/4: equal in f16.
  const Tensor far = Tensor::from_vector<double>({64, 0, 64.5, 0}, {2, 2});
  for (const DType dtype : {DType::f16, DType::bf16})
    CHECK(nearest_code(Tensor::from_vector<double>({64.5, 0}).to(dtype), far.to(dtype)).item<std::int64_t>() == 1);
}

TEST_CASE("nearest_code: an AutocastGuard changes no code") {
  const Tensor x = random_f64({400, 8}, 1).to(DType::f32), codebook = random_f64({200, 8}, 2).to(DType::f32);
  const std::vector<std::int64_t> codes = nearest_code(x, codebook).to_vector<std::int64_t>();
  const AutocastGuard guard(DType::bf16);
  CHECK(nearest_code(x, codebook).to_vector<std::int64_t>() == codes);
}

TEST_CASE("straight_through: the value forward, x's gradient backward") {
  const Tensor x = leaf_f64({2, 3}, 1), value = leaf_f64({2, 3}, 2), weights = random_f64({2, 3}, 3);
  const Tensor y = straight_through(x, value);
  CHECK(max_difference(y, value) == 0);
  sum(y * weights).backward();
  CHECK(max_difference(x.grad(), weights) == 0);
  CHECK(!value.grad().defined());
}

TEST_CASE("codebook: what does not fit is said") {
  const Tensor codebook = random_f64({4, 2});
  CHECK(error_of<ShapeError>([&] { return nearest_code(random_f64({3}), codebook); }) ==
        "nearest_code: expected x (..., D) and codebook (V >= 1, D), got (3,) and (4, 2)");
  CHECK(error_of<DTypeError>([&] { return nearest_code(random_f64({2}).to(DType::f32), codebook); }) != "no error");
  CHECK(error_of<ShapeError>([&] { return straight_through(random_f64({3}), codebook); }) ==
        "straight_through: expected two tensors of one shape, got (3,) and (4, 2)");
  const Tensor codes = Tensor::from_vector<std::int64_t>({0, 3, 4, -1}, {4}, Device::cpu());  // a GPU does not wait
  CHECK(error_of<ShapeError>([&] { return check_codes("codec", codes, 4), 0; }) == "codec: expected codes in [0, 4), got 4");
  CHECK(error_of<ShapeError>([&] { return check_codes("codec", codes, 5), 0; }) == "codec: expected codes in [0, 5), got -1");
  check_codes("codec", codes.narrow(0, 0, 3), 5);
}
