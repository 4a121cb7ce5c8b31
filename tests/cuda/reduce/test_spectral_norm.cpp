#include "cuda/reduce/spectral_norm.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "ops/elementwise.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// A weight with random estimates, of `of_w`, and its results poisoned.
SpectralWeight weight_of(const Shape& shape, DType dtype, DType of_w, bool iterates, std::uint64_t seed) {
  const std::int64_t R = shape[0], C = shape.numel() / R;
  const Tensor left = random_f64({R}, seed + 1).to(dtype), right = random_f64({C}, seed + 2).to(dtype);
  return {.w = poisoned(shape, of_w),
          .sigma = poisoned({}, dtype),
          .left = iterates ? poisoned({R}, dtype) : left,
          .right = iterates ? poisoned({C}, dtype) : right,
          .W = random_f64(shape, seed).to(dtype),
          .left_start = left,
          .right_start = right,
          .iterates = iterates};
}

SpectralWeight mapped(const SpectralWeight& weight, const auto& function) {
  const Tensor left = function(weight.left_start), right = function(weight.right_start);
  return {.w = function(weight.w),
          .sigma = function(weight.sigma),
          .left = weight.iterates ? function(weight.left) : left,
          .right = weight.iterates ? function(weight.right) : right,
          .W = function(weight.W),
          .left_start = left,
          .right_start = right,
          .iterates = weight.iterates};
}
SpectralWeight there(const SpectralWeight& weight) {
  return mapped(weight, [](const Tensor& tensor) { return mirrored(tensor); });
}
SpectralWeight wide(const SpectralWeight& weight) {
  return mapped(weight, [](const Tensor& tensor) { return tensor.to(DType::f64).clone(); });
}
SpectralWeightGradient gradient_of(const SpectralWeight& weight, const Tensor& dw, const Tensor& dW) {
  return {dW, dw, weight.W, weight.sigma, weight.left, weight.right};
}

constexpr DType kTypes[] = {DType::f32, DType::f64};

}  // namespace

TEST_CASE("weights, estimates and gradients agree with f64 on the host, of one row, one column and many") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kTypes)
    for (const Shape& shape :
         {Shape{1, 1}, Shape{1, 3000}, Shape{512, 1}, Shape{33, 5, 11}, Shape{3, 1000, 11}, Shape{2000, 16}, Shape{300, 257}})
      for (const bool iterates : {true, false}) {
        CAPTURE(dtype);
        CAPTURE(shape);
        CAPTURE(iterates);
        const SpectralWeight weight = weight_of(shape, dtype, dtype, iterates, 1), on_gpu = there(weight), exact = wide(weight);
        host().spectral_norm(std::array{exact});
        gpu().spectral_norm(std::array{on_gpu});
        // Without a step sigma is a sum of numbers of both signs.
        const double bound = (dtype == DType::f32 ? 64 * kFloatRounding : 256 * kDoubleRounding) * (iterates ? 1 : 64);
        CHECK(relative_to_largest(exact.w, on_gpu.w) <= bound);
        CHECK(relative_to_largest(exact.sigma, on_gpu.sigma) <= bound);
        CHECK(relative_to_largest(exact.left, on_gpu.left) <= bound);
        CHECK(relative_to_largest(exact.right, on_gpu.right) <= bound);
        CHECK(different(on_gpu.left.cpu(), on_gpu.left_start) == 0);
        CHECK(different(on_gpu.right.cpu(), on_gpu.right_start) == 0);
        const Tensor dw = random_f64(shape, 5).to(dtype), dW = poisoned(shape, DType::f64),
                     dW_there = mirrored(poisoned(shape, dtype));
        host().spectral_norm_backward(std::array{gradient_of(exact, dw.to(DType::f64), dW)});
        gpu().spectral_norm_backward(std::array{gradient_of(on_gpu, mirrored(dw), dW_there)});
        if (shape.numel() > 1) CHECK(relative_to_largest(dW, dW_there) <= bound);  // one number has the gradient 0
      }
}

TEST_CASE("weights and their gradients in 16 bits: those of f32, rounded") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Shape shape{40, 24, 5};
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    const SpectralWeight plain = there(weight_of(shape, DType::f32, DType::f32, true, 1));
    const SpectralWeight narrow = there(weight_of(shape, DType::f32, dtype, true, 1));
    gpu().spectral_norm(std::array{plain});
    gpu().spectral_norm(std::array{narrow});
    CHECK(max_difference(narrow.w.cpu(), plain.w.cpu().to(dtype)) == 0);
    CHECK(different(narrow.left.cpu(), plain.left) == 0);
    const Tensor dw = mirrored(random_f64(shape, 2).to(dtype));
    const Tensor dW = mirrored(poisoned(shape, DType::f32)), expected = mirrored(poisoned(shape, DType::f32));
    gpu().spectral_norm_backward(std::array{gradient_of(narrow, dw, dW)});
    gpu().spectral_norm_backward(std::array{gradient_of(plain, dw.to(DType::f32), expected)});
    CHECK(max_difference(dW.cpu(), expected.cpu()) == 0);
  }
}

TEST_CASE("many weights of several dtypes in one call, iterating or not, have the bits of one after the other") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  std::vector<SpectralWeight> all, alone;
  for (int i = 0; i < 120; ++i) {  // more than a table holds
    const DType dtype = i % 7 == 0 ? DType::f64 : DType::f32;
    const DType of_w = dtype == DType::f64 || i % 3 == 0 ? dtype : i % 3 == 1 ? DType::f16 : DType::bf16;
    const Shape shape{i % 50 + 1, i % 11 + 1, 3};
    const SpectralWeight weight = weight_of(shape, dtype, of_w, i % 4 != 0, static_cast<std::uint64_t>(i));
    all.push_back(there(weight));
    alone.push_back(there(weight));
    gpu().spectral_norm(std::array{alone.back()});
  }
  gpu().spectral_norm(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(different(alone[i].w.cpu(), all[i].w) == 0);
    CHECK(different(alone[i].left_start.cpu(), all[i].left_start) == 0);
    CHECK(different(alone[i].right_start.cpu(), all[i].right_start) == 0);
  }
}
