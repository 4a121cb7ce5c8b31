#include "ops/linear_fused.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/no_grad.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "ops/mac_counter.hpp"
#include "ops/norm.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

struct Sizes {
  std::int64_t rows, in, out;
};
/// Rows that one kernel takes and more; a row of one vector, of a warp's vectors, of several warps'; no whole vectors.
constexpr Sizes kSizes[] = {{1, 8, 1},    {2, 512, 96},  {2, 2048, 33}, {3, 24, 5},   {4, 520, 17},
                            {5, 1000, 3}, {8, 2048, 16}, {8, 4104, 9},  {9, 512, 20}, {7, 7, 6}};

/// -1, 0 or 1.
Tensor small_integers(const Shape& shape, std::uint64_t seed) {
  return sub(greater(uniform_f64(shape, 0, 3, seed), Tensor::full({}, 1, {DType::f64})),
             less(uniform_f64(shape, 0, 3, seed + 100), Tensor::full({}, 1, {DType::f64})));
}

/// Weights that keep the variance.
Tensor scaled_weight(const Sizes& s) { return random_f64({s.out, s.in}, 2) / std::sqrt(static_cast<double>(s.in)); }

}  // namespace

TEST_CASE("linear_fused: sums of small integers are exact in every dtype") {
  const NoGradGuard no_grad;
  for (const Sizes& s : kSizes) {
    CAPTURE(s.rows);
    CAPTURE(s.in);
    CAPTURE(s.out);
    // Few of the products are not zero, so that bf16 has all sums.
    const Tensor x = small_integers({s.rows, s.in}, 1);
    const Tensor weight =
        mul(small_integers({s.out, s.in}, 2), less(uniform_f64({s.out, s.in}, 0, 1, 9), Tensor::full({}, 0.1, {DType::f64})));
    const Tensor bias = small_integers({s.out}, 3), scale = small_integers({s.out}, 4) * 2.0;
    const Tensor residual = small_integers({s.rows, s.out}, 5);
    const Tensor product = linear(x, weight, bias);
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      CAPTURE(name_of(dtype));
      const auto in = [&](const Tensor& tensor) { return tensor.to(dtype); };
      const auto fused = [&](const LinearFusion& fusion, const Tensor& offset) {
        return linear_fused(in(x), in(weight), offset.defined() ? in(offset) : offset, fusion);
      };
      CHECK(fused({}, bias).dtype() == dtype);
      CHECK(max_difference(fused({}, bias), product) == 0);
      CHECK(max_difference(fused({}, {}), linear(x, weight)) == 0);
      CHECK(max_difference(fused({.scale = in(scale)}, bias), product * scale) == 0);
      CHECK(max_difference(fused({.residual = in(residual)}, bias), product + residual) == 0);
      CHECK(max_difference(fused({.scale = in(scale), .residual = in(residual)}, bias), residual + product * scale) == 0);
    }
  }
}

TEST_CASE("linear_fused: the norm before and GELU after the product agree with f64") {
  const NoGradGuard no_grad;
  for (const Sizes& s : kSizes) {
    CAPTURE(s.rows);
    CAPTURE(s.in);
    CAPTURE(s.out);
    const Tensor x = random_f64({s.rows, s.in}) + 3.0, weight = scaled_weight(s), bias = random_f64({s.out}, 3);
    const Tensor norm_weight = uniform_f64({s.in}, 0.5, 1.5, 4), norm_bias = uniform_f64({s.in}, -0.5, 0.5, 5);
    const Tensor scale = uniform_f64({s.out}, -1, 1, 6), residual = random_f64({s.rows, s.out}, 7);
    struct Bound {
      DType dtype;
      double unit;
    };
    for (const Bound& allowed :
         {Bound{DType::f32, 2 * kFloatSum}, {DType::f16, 8 * kHalfUnit}, {DType::bf16, 8 * kBFloat16Unit}}) {
      CAPTURE(name_of(allowed.dtype));
      const auto in = [&](const Tensor& tensor) { return tensor.to(allowed.dtype); };
      const auto wide = [&](const Tensor& tensor) { return in(tensor).to(DType::f64); };
      for (const bool has_gelu : {true, false}) {
        const LinearFusion fusion{.norm_epsilon = 1e-5,
                                  .norm_weight = in(norm_weight),
                                  .norm_bias = in(norm_bias),
                                  .has_gelu = has_gelu,
                                  .scale = in(scale),
                                  .residual = in(residual)};
        const Tensor y = linear_fused(in(x), in(weight), in(bias), fusion);
        Tensor expected = linear(layer_norm(wide(x), wide(norm_weight), wide(norm_bias)), wide(weight), wide(bias));
        if (has_gelu) expected = gelu(expected);
        CHECK(max_difference(y, wide(residual) + expected * wide(scale)) <= allowed.unit);
      }
      const Tensor plain = linear_fused(in(x), in(weight), {}, {.norm_epsilon = 1e-5});
      CHECK(max_difference(plain, linear(layer_norm(wide(x)), wide(weight))) <= allowed.unit);
    }
  }
}

TEST_CASE("linear_fused is the functions one after another where it has no kernel of its own") {
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 3, 6}), weight = random_f64({4, 6}, 2), bias = random_f64({4}, 3), scale = random_f64({4}, 4);
  const Tensor residual = random_f64({2, 3, 4}, 5), norm_weight = random_f64({6}, 6), norm_bias = random_f64({6}, 7);
  const Tensor y = linear_fused(x, weight, bias,
                                {.norm_epsilon = 1e-3,
                                 .norm_weight = norm_weight,
                                 .norm_bias = norm_bias,
                                 .has_gelu = true,
                                 .scale = scale,
                                 .residual = residual});
  const Tensor expected = addcmul(residual, gelu(linear(layer_norm(x, norm_weight, norm_bias, 1e-3), weight, bias)), scale);
  CHECK(max_difference(y, expected) == 0);
  CHECK(linear_fused(x.narrow(1, 0, 0), weight, bias, {.has_gelu = true}).shape() == Shape{2, 0, 4});
}

TEST_CASE("linear_fused: views, and its products are counted") {
  const NoGradGuard no_grad;
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Tensor x = small_integers({1, 16, 2}, 1).to(dtype), weight = small_integers({8, 16}, 2).to(dtype);
    const Tensor residual = small_integers({1, 8, 2}, 3).to(dtype);
    const Tensor rows = x.transpose(1, 2), added = residual.transpose(1, 2);
    const Tensor whole = linear_fused(rows.contiguous(), weight, {}, {.residual = added.contiguous()});
    CHECK(max_difference(linear_fused(rows, weight, {}, {.residual = added}), whole) == 0);
    CHECK(max_difference(linear_fused(rows, weight.transpose(0, 1).contiguous().transpose(0, 1), {}, {.residual = added}),
                         whole) == 0);
    const ops::MacCounter counter;
    static_cast<void>(linear_fused(rows, weight, {}, {}));
    CHECK(counter.count() == 2 * 8 * 16);
  }
}

TEST_CASE("linear_fused: gradients") {
  const auto function = [](const std::vector<Tensor>& in) {
    return linear_fused(
        in[0], in[1], in[2],
        {.norm_epsilon = 1e-3, .norm_weight = in[3], .norm_bias = in[4], .has_gelu = true, .scale = in[5], .residual = in[6]});
  };
  CHECK(gradcheck(function, {leaf_f64({2, 3}), leaf_f64({4, 3}, 2), leaf_f64({4}, 3), leaf_f64({3}, 4), leaf_f64({3}, 5),
                             leaf_f64({4}, 6), leaf_f64({2, 4}, 7)}) == "");
  Tensor x = random_f64({2, 16}).to(DType::f32), weight = random_f64({8, 16}, 2).to(DType::f32);
  weight.set_requires_grad(true);
  linear_fused(x, weight, {}, {.residual = random_f64({2, 8}, 3).to(DType::f32)}).backward(Tensor::ones({2, 8}, {DType::f32}));
  CHECK(weight.grad().defined());
}

TEST_CASE("linear_fused: errors") {
  const Tensor x = random_f64({2, 3}), weight = random_f64({4, 3});
  CHECK(error_of<ShapeError>([&] { return linear_fused(x, weight, {}, {.residual = random_f64({4})}); }) ==
        "linear_fused: expected residual (2, 4), got (4,)");
  CHECK(error_of<ShapeError>([&] {
          return linear_fused(x, weight, {}, {.scale = random_f64({2, 4})});
        }) == "linear_fused: expected scale (out=4), got (2, 4)");
  CHECK(error_of<ShapeError>([&] {
          return linear_fused(random_f64({2, 5}), weight, {}, {});
        }) == "linear: expected x (..., in=3), got (2, 5)");
  CHECK_THROWS_AS(static_cast<void>(linear_fused(x, weight.to(DType::f32), {}, {})), DTypeError);
  CHECK_THROWS_AS(static_cast<void>(linear_fused({}, weight, {}, {})), Error);
}
