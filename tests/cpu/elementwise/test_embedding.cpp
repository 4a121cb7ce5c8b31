#include "cpu/elementwise/embedding.hpp"

#include <doctest/doctest.h>

#include "ops/elementwise.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("entries are summed in order, and divided by their usage where there is one") {
  const Tensor codes = Tensor::from_vector<std::int64_t>({0, 1, 2, 3, 1, 0}, {1, 3, 2});  // (N, Q, L)
  const Tensor first = Tensor::from_vector<double>({1, 2, 10, 20}, {2, 2}), last = first * 1000.0;
  const Tensor sums = Tensor::from_vector<double>({0, 0, 0, 0, 300, 600, 8, 16}, {4, 2});
  const Tensor usage = Tensor::from_vector<double>({1, 1, 3, 0});
  const Tensor out = Tensor::empty({1, 2, 2}, {.dtype = DType::f64});
  const std::vector<EmbeddingTable> tables{{first}, {sums, usage}, {last}};
  cpu::embed(out, codes, tables, 0.5);
  CHECK(out.to_vector<double>() == std::vector<double>{1 + 100 + 10000, 2 + 200 + 20000, 10 + 16 + 1000, 20 + 32 + 2000});
}

TEST_CASE("every sum is rounded to the dtype; quotients of 16 bits are computed in f32") {
  const Tensor codes = Tensor::from_vector<std::int64_t>({0, 0, 0}, {1, 3, 1}), out = Tensor::empty({1, 1, 1}, {DType::bf16});
  const auto table = [](double value) { return EmbeddingTable{Tensor::full({1, 1}, value, {.dtype = DType::bf16})}; };
  const std::vector<EmbeddingTable> tables{table(256), table(1), table(1)};  // bf16 has no 257
  cpu::embed(out, codes, tables, 0);
  CHECK(out.item<float>() == 256);
  const std::vector<EmbeddingTable> divided{
      {Tensor::full({1, 1}, 1, {.dtype = DType::bf16}), Tensor::full({1}, 0, {.dtype = DType::bf16})}};
  cpu::embed(out, codes.narrow(1, 0, 1), divided, 1e-5);
  CHECK(out.item<float>() == Tensor::full({}, 1 / 1e-5F, {.dtype = DType::bf16}).item<float>());
}

TEST_CASE("a code outside its table is an error, and nothing is written") {
  const Tensor out = Tensor::zeros({1, 2, 1}, {.dtype = DType::f64});
  const std::vector<EmbeddingTable> tables{{Tensor::ones({3, 1}, {.dtype = DType::f64})},
                                           {Tensor::ones({2, 1}, {.dtype = DType::f64})}};
  const auto with = [&](std::int64_t last) {
    return error_of<ShapeError>([&] {
      cpu::embed(out, Tensor::from_vector<std::int64_t>({0, 2, 0, last}, {1, 2, 2}), tables, 0);
      return 0;
    });
  };
  CHECK(with(2) == "index_select: expected positions in [0, 2), got 2");
  CHECK(with(-1) == "index_select: expected positions in [0, 2), got -1");
  CHECK(out.to_vector<double>() == std::vector<double>{0, 0});
}
