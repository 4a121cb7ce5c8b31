#include "cuda/elementwise/snake.hpp"

#include <doctest/doctest.h>

#include <array>
#include <utility>

#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// `values` in a dtype, at a misaligned address, between numbers that must not be read.
Tensor placed(const Tensor& values, DType dtype, std::int64_t misalignment) {
  Tensor to = poisoned(values.shape(), dtype, misalignment);
  to.copy_(values.to(dtype));
  return to;
}

/// alpha or beta (C) as a view of x's shape (N, C, L).
Tensor per_channel(const Tensor& values, const Shape& shape) { return values.unsqueeze(1).expand(shape); }

/// The same, one number for every element: the general kernel reads it.
Tensor per_element(const Tensor& values, const Shape& shape) { return per_channel(values, shape).contiguous(); }

}  // namespace

TEST_CASE("rows with their channels' parameters have the bits of the general kernel, at every alignment and dtype") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const Shape& shape : {Shape{1, 1, 8}, Shape{1, 3, 4096}, Shape{2, 5, 1000}, Shape{3, 7, 333}, Shape{2, 64, 2}})
      for (const std::int64_t misalignment : {0, 1}) {
        CAPTURE(dtype);
        CAPTURE(shape);
        CAPTURE(misalignment);
        const Shape channels{shape[1]};
        const Tensor x = mirrored(placed(random_f64(shape, 1), dtype, misalignment));
        const Tensor alpha = mirrored(placed(uniform_f64(channels, 0.5, 4, 2), dtype, misalignment));
        const Tensor betas = uniform_f64(channels, 0.5, 4, 3);
        if (shape[1] == 7)  // a zero, and others far from 1
          for (const auto& [c, value] : {std::pair{0, 0.0}, {1, 1e-35}, {2, 1e35}, {3, -2.0}, {4, 1e-3}, {5, 3e3}})
            betas.data<double>()[c] = value;
        const Tensor beta = mirrored(placed(betas, dtype, misalignment));
        const Tensor on_host = poisoned(shape, dtype, misalignment);
        const Tensor expected = mirrored(on_host), y = mirrored(on_host);
        const std::array<Tensor, 3> general{x, per_element(alpha, shape), per_element(beta, shape)};
        const std::array<Tensor, 3> rows{x, per_channel(alpha, shape), per_channel(beta, shape)};
        gpu().map(MapOp::snake, expected, general, {});
        gpu().map(MapOp::snake, y, rows, {});
        gpu().copy_to_host(on_host.storage().data(), expected.storage().data(), on_host.storage().bytes());
        CHECK(different(on_host, y) == 0);
      }
}

TEST_CASE("layouts with other parameters are left to the general kernel") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Shape shape{2, 3, 8};
  const Tensor x = Tensor::zeros(shape, {.device = Device::cuda()}), y = Tensor::zeros_like(x);
  const Tensor alpha = Tensor::ones({3}, {.device = Device::cuda()}), wide = per_element(alpha, shape);
  const auto is_taken = [&](const Tensor& of_x, const Tensor& of_alpha, const Tensor& of_beta) {
    const std::array<Tensor, 3> inputs{of_x, of_alpha, of_beta};
    return cuda::snake_rows(y, inputs, nullptr);
  };
  CHECK(is_taken(x, per_channel(alpha, shape), per_channel(alpha, shape)));
  CHECK_FALSE(is_taken(x, wide, per_channel(alpha, shape)));
  CHECK_FALSE(is_taken(x, per_channel(alpha, shape), wide));
  const Tensor turned = Tensor::zeros({2, 8, 3}, {.device = Device::cuda()}).transpose(1, 2);
  CHECK_FALSE(is_taken(turned, per_channel(alpha, shape), per_channel(alpha, shape)));
}
