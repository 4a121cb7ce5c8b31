#include "cuda/elementwise/activation_backward.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "ops/reduce.hpp"
#include "support/device.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::leaky_relu, Activation::tanh};

double bound_of(DType dtype) {
  if (dtype == DType::f64) return kDoubleSum;
  if (dtype == DType::f32) return kFloatRounding;
  return dtype == DType::f16 ? kHalfRounding : kBFloat16Rounding;
}

/// `tensor` as it is, or a view that begins one element later.
Tensor placed(const Tensor& tensor, bool shifted) {
  if (!shifted) return tensor;
  Tensor wide = poisoned(tensor.shape(), tensor.dtype(), 1);
  wide.copy_(tensor);
  return wide;
}

void check_backward(Activation activation, const Shape& shape, DType dtype, bool shifted) {
  CAPTURE(static_cast<int>(activation));
  CAPTURE(shape);
  CAPTURE(dtype);
  CAPTURE(shifted);
  const ConvEpilogue epilogue{.activation = activation, .slope = 0.1};
  const Tensor result = placed(uniform_f64(shape, -1, 1, 1).to(dtype), shifted);
  const Tensor gradient = placed(random_f64(shape, 2).to(dtype), shifted);
  const Tensor in = poisoned(shape, dtype, shifted ? 1 : 0), sums = poisoned({shape[1]}, dtype);
  const Tensor in_there = mirrored(in), sums_there = mirrored(sums), again = mirrored(sums), mapped = mirrored(in);
  host().activation_backward(epilogue, result, gradient, in, sums);
  const Tensor there = mirrored(result), gradient_there = mirrored(gradient);
  gpu().activation_backward(epilogue, there, gradient_there, in_there, sums_there);
  // Rounded elements may differ from the host's, and their sum may be small: the sum of the GPU's own elements.
  const Tensor elements = activation == Activation::none ? gradient : in_there.cpu();
  CHECK(worst_difference(sum(elements.to(DType::f64), {0, 2}).to(dtype), sums_there) <= bound_of(dtype));
  CHECK(worst_difference(sum((activation == Activation::none ? gradient : in).to(DType::f64), {0, 2}).to(dtype), sums) <=
        bound_of(dtype));
  const auto bits = [](const Tensor& tensor) { return tensor.to(DType::f64).cpu().to_vector<double>(); };
  if (activation == Activation::none) {
    CHECK(different(in, in_there) == 0);  // unchanged
    return;
  }
  // The same bits as from separate functions, and when only one of the two outputs is requested.
  CHECK(worst_difference(in, in_there) <= bound_of(dtype));
  gpu().map(derivative_of(activation), mapped, std::array{there, gradient_there}, {epilogue.slope, 0});
  CHECK(bits(mapped) == bits(in_there));
  gpu().activation_backward({}, {}, mapped, {}, again);
  CHECK(bits(again) == bits(sums_there));
  const Tensor alone = mirrored(poisoned(shape, dtype));
  gpu().activation_backward(epilogue, there, gradient_there, alone, {});
  CHECK(bits(mapped) == bits(alone));
}

void check_shapes(DType dtype) {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const Activation activation : kActivations)
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{2, 64, 256}, Shape{5, 3, 4095}, Shape{4, 2, 4104}})
      for (const bool shifted : {false, true}) check_backward(activation, shape, dtype, shifted);
}

}  // namespace

TEST_CASE("f32: derivatives have the bits of map(), sums the host's values; aligned or not") { check_shapes(DType::f32); }
TEST_CASE("f64: derivatives have the bits of map(), sums the host's values; aligned or not") { check_shapes(DType::f64); }
TEST_CASE("f16: derivatives have the bits of map(), sums the host's values; aligned or not") { check_shapes(DType::f16); }
TEST_CASE("bf16: derivatives have the bits of map(), sums the host's values; aligned or not") { check_shapes(DType::bf16); }

TEST_CASE("short rows that begin anywhere: groups of 32, 16 and 8 channels, one piece and a cluster") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  int turn = 0;
  for (const Shape& shape : {Shape{9, 512, 129}, Shape{40, 264, 51}, Shape{1, 1024, 1}, Shape{176, 1024, 10},
                             Shape{3, 256, 511}, Shape{2, 256, 513}, Shape{33, 1040, 85}, Shape{9, 248, 51}})
    for (const Activation activation : kActivations)
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
        for (const bool shifted : {false, true}) {
          if (is_reduced() && (shape.numel() > 1 << 20 || turn++ % 7 != 0)) continue;
          check_backward(activation, shape, dtype, shifted);
        }
}

TEST_CASE("one piece, a cluster of pieces, a second launch") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const Activation activation : {Activation::none, Activation::leaky_relu})
    for (const Shape& shape : {Shape{1, 2, 4096}, Shape{1, 2, 4097}, Shape{3, 3, 4000}, Shape{8, 300, 4096},
                               Shape{2, 1, 262144}, Shape{2, 1, 262145}, Shape{9, 2, 65537}, Shape{1, 70000, 3}})
      check_backward(activation, shape, DType::f32, false);
}

TEST_CASE("where the result is NaN relu passes the gradient and leaky_relu its slope's share") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor result = Tensor::full({1, 1, 9}, std::nan("")).to(DType::f32), gradient = Tensor::ones({1, 1, 9});
  for (const auto& [activation, share] : {std::pair(Activation::relu, 1.0F), std::pair(Activation::leaky_relu, 0.25F)}) {
    const Tensor in = mirrored(poisoned({1, 1, 9}, DType::f32));
    gpu().activation_backward({.activation = activation, .slope = 0.25}, mirrored(result), mirrored(gradient), in, {});
    CHECK(in.cpu().to_vector<float>() == std::vector<float>(9, share));
  }
}

TEST_CASE("without an activation nothing but the sums is written") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor gradient = random_f64({2, 3, 50}).to(DType::f32), before = mirrored(gradient),
               sums = mirrored(poisoned({3}, DType::f32));
  gpu().activation_backward({}, {}, before, {}, sums);
  CHECK(different(gradient, before) == 0);
}
