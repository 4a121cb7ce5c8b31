#include "cuda/elementwise/snake_backward.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// Tolerances: one rounding of the result, and the arithmetic before it; for 16 bits it runs in f32, with exact products.
double rounding_of(DType dtype) { return dtype == DType::f16 ? kHalfUnit : dtype == DType::bf16 ? kBFloat16Unit : 0; }
double arithmetic_of(DType dtype) {
  if (dtype == DType::f64) return 4 * kDoubleSum;
  return (dtype == DType::f32 ? 4 : 8) * kFloatRounding;
}

/// `values` in a dtype, at a misaligned address, between numbers that must not be read.
Tensor placed(const Tensor& values, DType dtype, std::int64_t misalignment) {
  Tensor to = poisoned(values.shape(), dtype, misalignment);
  to.copy_(values.to(dtype));
  return to;
}

/// Compares with the host, which maps and reduces in f64.
void check_gradients(const Shape& shape, DType dtype, std::int64_t misalignment) {
  CAPTURE(shape);
  CAPTURE(dtype);
  CAPTURE(misalignment);
  const Shape channels{shape[1]};
  const Tensor x = placed(random_f64(shape, 1), dtype, misalignment), g = placed(random_f64(shape, 2), dtype, misalignment);
  const Tensor alpha = placed(uniform_f64(channels, 0.5, 2, 3), dtype, misalignment);
  const Tensor beta = placed(uniform_f64(channels, 0.5, 2, 4), dtype, misalignment);
  const auto exact = [](const Tensor& tensor) { return tensor.to(DType::f64).contiguous(); };
  const SnakeGradients expected{Tensor::empty(shape, {.dtype = DType::f64, .device = Device::cpu()}),
                                Tensor::empty(channels, {.dtype = DType::f64, .device = Device::cpu()}),
                                Tensor::empty(channels, {.dtype = DType::f64, .device = Device::cpu()})};
  host().snake_backward(exact(x), exact(alpha), exact(beta), exact(g), expected);
  const Tensor x_there = mirrored(x), g_there = mirrored(g), alpha_there = mirrored(alpha), beta_there = mirrored(beta);
  const auto target = [&](const Shape& of) { return mirrored(poisoned(of, dtype, misalignment)); };
  const SnakeGradients all{target(shape), target(channels), target(channels)};
  gpu().snake_backward(x_there, alpha_there, beta_there, g_there, all);
  CHECK(worst_difference(expected.x, all.x) <= rounding_of(dtype) + arithmetic_of(dtype));
  // A sum of n numbers of both signs has a magnitude of about sqrt(n).
  const double walk = std::sqrt(static_cast<double>(shape.numel() / shape[1]));
  CHECK(worst_difference(expected.alpha, all.alpha) <= rounding_of(dtype) + arithmetic_of(dtype) * walk);
  CHECK(worst_difference(expected.beta, all.beta) <= rounding_of(dtype) + arithmetic_of(dtype) * walk);
  // The same bits on a second call, and when only some gradients are requested.
  const auto bits = [](const Tensor& tensor) { return tensor.to(DType::f64).cpu().to_vector<double>(); };
  const SnakeGradients first{target(shape), {}, {}}, second{{}, target(channels), {}}, third{{}, {}, target(channels)};
  for (const SnakeGradients* some : {&first, &second, &third})
    gpu().snake_backward(x_there, alpha_there, beta_there, g_there, *some);
  CHECK(bits(first.x) == bits(all.x));
  // The sum of the result and the old value, each rounded.
  const SnakeGradients with{target(shape), target(channels), target(channels),
                            mirrored(placed(random_f64(shape, 5), dtype, misalignment))};
  gpu().snake_backward(x_there, alpha_there, beta_there, g_there, with);
  const Tensor sum = target(shape);
  gpu().map(MapOp::add, sum, std::array{with.added, all.x}, {});
  CHECK(bits(with.x) == bits(sum));
  CHECK(bits(with.alpha) == bits(all.alpha));
  CHECK(bits(second.alpha) == bits(all.alpha));
  CHECK(bits(third.beta) == bits(all.beta));
}

}  // namespace

TEST_CASE("the gradients of snake in one pass: dtypes, shapes, alignments, pieces") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{2, 64, 256}, Shape{5, 3, 4095}, Shape{4, 2, 4104}})
      for (const std::int64_t misalignment : {0, 1}) check_gradients(shape, dtype, misalignment);
  check_gradients({2, 1, 300000}, DType::f32, 0);
  check_gradients({1, 70000, 3}, DType::f32, 0);
}
