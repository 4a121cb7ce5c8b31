#include "cpu/linear/matmul.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::full({a.size(0), a.size(1), b.size(2)}, std::nan(""), {.dtype = a.dtype()});
  cpu::matmul(out, a, b);
  return out;
}

// Term by term in f64.
Tensor plain(const Tensor& a, const Tensor& b) {
  const std::int64_t B = a.size(0), M = a.size(1), K = a.size(2), N = b.size(2);
  const auto left = a.to(DType::f64).to_vector<double>(), right = b.to(DType::f64).to_vector<double>();
  std::vector<double> out(static_cast<std::size_t>(B * M * N), 0);
  for (std::int64_t i = 0; i < B * M * N; ++i)
    for (std::int64_t k = 0; k < K; ++k)
      out[static_cast<std::size_t>(i)] +=
          left[static_cast<std::size_t>(i / N * K + k)] * right[static_cast<std::size_t>((i / (M * N) * K + k) * N + i % N)];
  return Tensor::from_vector(out, {B, M, N});
}

Tensor integers(const Shape& shape, std::uint64_t seed) { return uniform_f64(shape, -2, 3, seed).to(DType::i64); }

}  // namespace

TEST_CASE("small integers are exact in every size, dtype and layout") {
  for (const auto& [B, M, K, N] : {std::array<std::int64_t, 4>{1, 1, 1, 1},
                                   {2, 12, 5, 32},
                                   {1, 13, 7, 33},
                                   {3, 6, 4, 16},
                                   {1, 193, 3, 257},
                                   {2, 5, 300, 9},
                                   {1, 1, 513, 40},
                                   {1, 40, 2, 1}}) {
    const Tensor a = integers({B, M, K}, 1), b = integers({B, K, N}, 2);
    const std::vector<double> want = plain(a, b).to_vector<double>();
    for_each_isa([&, M = M, N = N, K = K] {
      for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
        if (K > 100 && dtype == DType::bf16) continue;  // sums past 256 are rounded
        CAPTURE(dtype);
        CAPTURE(M);
        CAPTURE(N);
        const Tensor x = a.to(dtype), y = b.to(dtype);
        const auto flipped = [](const Tensor& t) { return t.transpose(1, 2).contiguous().transpose(1, 2); };
        CHECK(product(x, y).to(DType::f64).to_vector<double>() == want);
        CHECK(product(flipped(x), flipped(y)).to(DType::f64).to_vector<double>() == want);
        CHECK(product(x, flipped(y)).to(DType::f64).to_vector<double>() == want);
      }
    });
  }
}

TEST_CASE("a broadcast operand") {
  const Tensor a = integers({1, 9, 4}, 1).to(DType::f32).expand({3, 9, 4}), b = integers({3, 4, 6}, 2).to(DType::f32);
  CHECK(product(a, b).to(DType::f64).to_vector<double>() == plain(a, b).to_vector<double>());
}

TEST_CASE("random numbers, and threads do not change a bit") {
  const Tensor a = random_f64({2, 250, 400}), b = random_f64({2, 400, 300}, 2), want = plain(a, b);
  const int before = num_threads();
  const Tensor one = product(a.to(DType::f32), b.to(DType::f32));
  CHECK(max_difference(product(a, b), want) <= kDoubleSum);
  CHECK(max_difference(one, want) <= kFloatSum * std::sqrt(400));
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    CHECK(product(a.to(DType::f32), b.to(DType::f32)).to_vector<float>() == one.to_vector<float>());
  }
  set_num_threads(before);
}

TEST_CASE("a few rows have the bits that they have in a larger product") {
  const Tensor a = random_f64({1, 20, 603}), b = random_f64({1, 603, 75}, 2);
  for_each_isa([&] {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool is_flipped : {false, true}) {
        const Tensor x = a.to(dtype), plain = b.to(dtype);
        const Tensor y = is_flipped ? plain.transpose(1, 2).contiguous().transpose(1, 2) : plain, whole = product(x, y);
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 9}) {
          CAPTURE(dtype);
          CAPTURE(is_flipped);
          CAPTURE(rows);
          CHECK(product(x.narrow(1, 3, rows), y).to(DType::f64).to_vector<double>() ==
                whole.narrow(1, 3, rows).to(DType::f64).to_vector<double>());
        }
      }
  });
}

TEST_CASE("empty products, and integers") {
  CHECK(product(Tensor::zeros({2, 3, 0}), Tensor::zeros({2, 0, 2})).to_vector<float>() == std::vector<float>(12, 0));
  CHECK(product(Tensor::zeros({2, 0, 3}), Tensor::zeros({2, 3, 4})).numel() == 0);
  const Tensor i = integers({1, 2, 2}, 1);
  CHECK(error_of<DTypeError>([&] {
          cpu::matmul(i, i, i);
          return 0;
        }) == "matmul: expected a floating-point dtype, got i64");
}
