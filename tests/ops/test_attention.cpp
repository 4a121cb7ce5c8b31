#include "ops/attention.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/gradcheck.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// The formula for (N, H) = (1, 1).
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const auto qs = q.to_vector<double>(), ks = k.to_vector<double>(), vs = v.to_vector<double>();
  const std::int64_t Lq = q.size(2), Lk = k.size(2), D = q.size(3), E = v.size(3);
  const auto at = [](const std::vector<double>& x, std::int64_t row, std::int64_t width, std::int64_t column) {
    return x[static_cast<std::size_t>(row * width + column)];
  };
  std::vector<double> out;
  for (std::int64_t i = 0; i < Lq; ++i) {
    const std::int64_t p = i + Lk - Lq;
    std::vector<double> sums(static_cast<std::size_t>(E), 0.0);
    double total = 0;
    for (std::int64_t j = 0; j < Lk; ++j) {
      if (options.causal && (j > p || (options.window > 0 && j <= p - options.window))) continue;
      double score = 0;
      for (std::int64_t d = 0; d < D; ++d) score += at(qs, i, D, d) * at(ks, j, D, d);
      const double e = std::exp(score * options.scale.value_or(1 / std::sqrt(static_cast<double>(D))));
      total += e;
      for (std::int64_t d = 0; d < E; ++d) sums[static_cast<std::size_t>(d)] += e * at(vs, j, E, d);
    }
    for (const double sum : sums) out.push_back(sum / total);
  }
  return Tensor::from_vector(out, {1, 1, Lq, E});
}

}  // namespace

TEST_CASE("attention agrees with its formula, within a block and across blocks") {
  for (const auto& [Lq, Lk] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {7, 7}, {300, 310}}) {
    const Tensor q = random_f64({1, 1, Lq, 4}), k = random_f64({1, 1, Lk, 4}, 2), v = random_f64({1, 1, Lk, 3}, 3);
    for (const AttentionOptions& options :
         {AttentionOptions{}, AttentionOptions{.causal = true}, AttentionOptions{.causal = true, .window = 2},
          AttentionOptions{.causal = true, .window = 150, .scale = 0.3}, AttentionOptions{.causal = true, .first_key = 77}})
      CHECK(max_difference(scaled_dot_product_attention(q, k, v, options), plain_attention(q, k, v, options)) <= kDoubleSum);
  }
}

TEST_CASE("attention: batches and heads are independent, dtypes, empty inputs") {
  const Tensor q = random_f64({2, 3, 4, 8}), k = random_f64({2, 3, 6, 8}, 2), v = random_f64({2, 3, 6, 8}, 3);
  const Tensor y = scaled_dot_product_attention(q, k, v, {.causal = true});
  const auto one = [](const Tensor& x) { return x.narrow(0, 1, 1).narrow(1, 2, 1); };
  CHECK(max_difference(one(y), plain_attention(one(q), one(k), one(v), {.causal = true})) <= kDoubleSum);
  for (const auto& [dtype, rounding] :
       {std::pair{DType::f32, kFloatSum}, std::pair{DType::f16, kHalfRounding}, std::pair{DType::bf16, kBFloat16Rounding}}) {
    const auto in = [type = dtype](const Tensor& x) { return x.to(type); };
    const auto wide = [type = dtype](const Tensor& x) { return x.to(type).to(DType::f64); };
    const Tensor low = scaled_dot_product_attention(in(q), in(k), in(v));
    CHECK(low.dtype() == dtype);
    CHECK(max_difference(low, scaled_dot_product_attention(wide(q), wide(k), wide(v))) <= rounding);
  }
  CHECK(scaled_dot_product_attention(q.narrow(2, 0, 0), k, v).shape() == Shape{2, 3, 0, 8});
  CHECK(scaled_dot_product_attention(q.narrow(0, 0, 0), k.narrow(0, 0, 0), v.narrow(0, 0, 0)).shape() == Shape{0, 3, 4, 8});
}

TEST_CASE("attention: interleaved heads, wide and odd heads, few and many queries") {
  struct Sizes {
    std::int64_t N, H, Lq, Lk, D, E, window;
  };
  for (const Sizes& s : {Sizes{1, 2, 1, 1, 64, 64, 0},
                         {2, 3, 2, 251, 64, 64, 250},
                         {1, 2, 5, 40, 7, 5, 33},
                         {1, 1, 3, 300, 128, 128, 0},
                         {1, 2, 2, 70, 130, 129, 64},
                         {2, 2, 33, 65, 12, 100, 32},
                         {1, 8, 600, 600, 64, 64, 500}}) {
    CAPTURE(s.D);
    CAPTURE(s.Lk);
    const auto side_by_side = [&](std::int64_t L, std::int64_t width, std::uint64_t seed) {
      return random_f64({s.N, L, s.H, width}, seed).transpose(1, 2);
    };
    const Tensor q = side_by_side(s.Lq, s.D, 1), k = side_by_side(s.Lk, s.D, 2), v = side_by_side(s.Lk, s.E, 3);
    const AttentionOptions options{.causal = true, .window = s.window};
    const Tensor y = scaled_dot_product_attention(q, k, v, options);
    const Tensor low = scaled_dot_product_attention(q.to(DType::f32), k.to(DType::f32), v.to(DType::f32), options);
    CHECK(max_difference(low, y) <= kFloatSum);
    for (std::int64_t n = 0; n < s.N; ++n)
      for (std::int64_t h = 0; h < s.H; h += s.H == 1 ? 1 : s.H - 1) {
        const auto one = [&](const Tensor& x) { return x.narrow(0, n, 1).narrow(1, h, 1); };
        CHECK(max_difference(one(y), plain_attention(one(q), one(k), one(v), options)) <= kDoubleSum);
      }
  }
}

TEST_CASE("attention: what is not a number stays so, and stays in its query") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity}) {
    const Tensor q = random_f64({1, 1, 40, 8}), k = random_f64({1, 1, 40, 8}, 2), v = random_f64({1, 1, 40, 8}, 3);
    k.narrow(2, 37, 1).fill_(bad);
    const auto y = scaled_dot_product_attention(q, k, v, {.causal = true}).to_vector<double>();
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isfinite(y[i]) == (i / 8 < 37));
  }
}

TEST_CASE("attention: gradients, across blocks of queries too") {
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = true}, AttentionOptions{.causal = true, .window = 2, .scale = 0.7}}) {
    const auto function = [&](const std::vector<Tensor>& in) {
      return scaled_dot_product_attention(in[0], in[1], in[2], options);
    };
    CHECK(gradcheck(function, {leaf_f64({2, 1, 3, 2}), leaf_f64({2, 1, 4, 2}, 2), leaf_f64({2, 1, 4, 3}, 3)}) == "");
    CHECK(gradcheck(function, {leaf_f64({1, 1, 130, 1}), leaf_f64({1, 1, 130, 1}, 2), leaf_f64({1, 1, 130, 1}, 3)}) == "");
    CHECK(gradcheck(function, {leaf_f64({1, 1, 0, 2}), leaf_f64({1, 1, 4, 2}, 2), leaf_f64({1, 1, 4, 3}, 3)}) == "");
  }
}

TEST_CASE("attention: a stream with a ring of keys has the bits of the whole") {
  if (default_device().is_cuda()) SKIP_TEST("only the CPU sums products of all sizes in one order");
  constexpr std::int64_t L = 700;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t window : {0, 5, 72, 250, 300}) {
      const auto part = [&](std::uint64_t seed) { return random_f64({1, 2, L, 16}, seed).to(dtype); };
      const Tensor q = part(1), k = part(2), v = part(3);
      const Tensor whole = scaled_dot_product_attention(q, k, v, {.causal = true, .window = window});
      for (const std::int64_t size : {1, 3, 64, 200})
        for (std::int64_t t = 0; t < L; t += size) {
          const std::int64_t count = std::min(size, L - t);
          const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, t - window + 1) : 0;
          const auto ring = [&](const Tensor& x) { return x.narrow(2, first, t + count - first); };
          const Tensor y = scaled_dot_product_attention(q.narrow(2, t, count), ring(k), ring(v),
                                                        {.causal = true, .window = window, .first_key = first});
          REQUIRE(max_difference(y, whole.narrow(2, t, count)) == 0);
        }
    }
}

TEST_CASE("attention: errors") {
  const Tensor q = random_f64({1, 2, 4, 8}), k = random_f64({1, 2, 3, 8});
  CHECK(error_of<ShapeError>([&] { return scaled_dot_product_attention(q, k, k, {.causal = true}); }) ==
        "scaled_dot_product_attention: expected Lk >= Lq with causal, got Lk=3 and Lq=4");
  CHECK(error_of<ShapeError>([&] { return scaled_dot_product_attention(q, k, k, {.window = 3}); }) ==
        "scaled_dot_product_attention: expected window >= 0, and 0 without causal, got 3");
  CHECK(error_of<ShapeError>([&] {
          return scaled_dot_product_attention(q, random_f64({1, 2, 3, 7}), k);
        }) == "scaled_dot_product_attention: expected k (N=1, H=2, Lk, D=8), got (1, 2, 3, 7)");
  CHECK(error_of<ShapeError>([&] {
          return scaled_dot_product_attention(q, k, random_f64({1, 2, 4, 8}));
        }) == "scaled_dot_product_attention: expected v (N=1, H=2, Lk=3, E), got (1, 2, 4, 8)");
  CHECK(error_of<ShapeError>([&] { return scaled_dot_product_attention(q, k.narrow(2, 0, 0), k.narrow(2, 0, 0)); }) ==
        "scaled_dot_product_attention: expected at least one key, got none");
}

TEST_CASE("rope turns pairs by position times frequency") {
  const Tensor x = random_f64({2, 3, 5, 6});
  const auto xs = x.to_vector<double>();
  const Tensor stored = Tensor::from_vector<float>({1, 0.25, 0.1f});
  for (const bool interleaved : {true, false})
    for (const bool is_stored : {true, false}) {
      RopeOptions options{.base = 100, .interleaved = interleaved, .offset = 7};
      if (is_stored) options.inv_freq = stored;
      const auto ys = rope(x, options).to_vector<double>();
      for (std::size_t row = 0; row < 30; ++row)
        for (std::size_t i = 0; i < 3; ++i) {
          const double frequency = is_stored ? static_cast<double>(stored.to_vector<float>()[i])
                                             : std::pow(100.0, -2.0 * static_cast<double>(i) / 6);
          const double angle = (7 + static_cast<double>(row % 5)) * frequency;
          const std::size_t a = row * 6 + (interleaved ? 2 * i : i), b = row * 6 + (interleaved ? 2 * i + 1 : i + 3);
          CHECK(std::abs(ys[a] - (xs[a] * std::cos(angle) - xs[b] * std::sin(angle))) <= kDoubleRounding);
          CHECK(std::abs(ys[b] - (xs[b] * std::cos(angle) + xs[a] * std::sin(angle))) <= kDoubleRounding);
        }
      options.offset = 0;
      options.positions = Tensor::from_vector<std::int64_t>({7, 8, 9, 10, 11});
      CHECK(max_difference(rope(x, options), Tensor::from_vector(ys, x.shape())) == 0);
      options.positions = Tensor::from_vector<std::int64_t>({7});
      CHECK(max_difference(rope(x, options), Tensor::from_vector(ys, x.shape())) == 0);
    }
}

TEST_CASE("rope: gradients, dtypes, nothing, errors") {
  for (const bool interleaved : {true, false})
    CHECK(gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0], {.interleaved = interleaved, .offset = 3}); },
                    {leaf_f64({2, 3, 4})}) == "");
  const Tensor side_by_side = random_f64({2, 5, 3, 4}).transpose(1, 2);  // heads of a projection
  CHECK(max_difference(rope(side_by_side), rope(side_by_side.contiguous())) == 0);
  CHECK(max_difference(rope(side_by_side.narrow(3, 1, 2)), rope(side_by_side.narrow(3, 1, 2).contiguous())) == 0);
  const Tensor x = random_f64({2, 9, 8});
  CHECK(max_difference(rope(x.to(DType::f32)), rope(x)) <= 4 * kFloatRounding);
  for (const auto& [dtype, rounding] : {std::pair{DType::f16, kHalfRounding}, std::pair{DType::bf16, kBFloat16Rounding}}) {
    CHECK(rope(x.to(dtype)).dtype() == dtype);
    CHECK(max_difference(rope(x.to(dtype)), rope(x.to(dtype).to(DType::f64))) <= rounding);
  }
  CHECK(rope(x.narrow(1, 0, 0)).shape() == Shape{2, 0, 8});
  CHECK(error_of<ShapeError>([&] {
          return rope(random_f64({2, 3}));
        }) == "rope: expected x (..., L, D) with an even D, got (2, 3)");
  CHECK(error_of<ShapeError>([&] { return rope(x, {.inv_freq = random_f64({3})}); }) ==
        "rope: expected inv_freq (D/2=4), got (3,)");
}
