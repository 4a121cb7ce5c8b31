#include "cuda/elementwise/snake.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

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

TEST_CASE("Snake's error is that of its rounding at every size of x, alpha and beta") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  std::vector<double> values;
  for (const double size : {0.0, 1e-30, 1e-4, 0.1, 0.7, 1.0, 3.0, 20.0, 1e3, 3e4, 5e6, 1e12, 1e30})
    for (const double factor : {1.0, -1.0, 1.2345678, -0.987, 1.5707964, 3.1415927}) values.push_back(size * factor);
  const std::vector<double> alphas{1e-30, 1e-3, 0.5, 1, 3.7, 40, 1e4}, betas{1e-6, 0.3, 1, 50};
  const auto count = static_cast<std::int64_t>(values.size());
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const double asked_alpha : alphas)
      for (const double asked_beta : betas) {
        const Tensor exact = Tensor::zeros({1, 1, count}, {.dtype = DType::f64});
        std::copy(values.begin(), values.end(), exact.data<double>());
        const Tensor x = exact.to(dtype);
        const Tensor alpha = Tensor::full({1}, asked_alpha).to(dtype), beta = Tensor::full({1}, asked_beta).to(dtype);
        const Tensor y = Tensor::empty({1, 1, count}, {.dtype = dtype, .device = Device::cuda()});
        const std::array<Tensor, 3> inputs{mirrored(x), per_channel(mirrored(alpha), x.shape()),
                                           per_channel(mirrored(beta), x.shape())};
        gpu().map(MapOp::snake, y, inputs, {});
        const auto number = [](const Tensor& tensor, std::int64_t i) {
          return tensor.to(DType::f64).cpu().to_vector<double>()[static_cast<std::size_t>(i)];
        };
        const double a = number(alpha, 0), b = number(beta, 0);
        const std::vector<double> got = y.to(DType::f64).cpu().to_vector<double>(), of_x = x.to(DType::f64).to_vector<double>();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double v = of_x[i], u = a * v, s = std::sin(u), expected = v + s * s / b;
          // The error of the angle: the product alpha*x may be rounded to f32 before its sine.
          const double of_product = std::min(1.0, (dtype == DType::f32 ? 6e-8 : 2.5e-7) * std::fabs(u));
          const double of_angle =
              (std::fabs(std::sin(2 * u)) + of_product) * std::min(1.0, of_product + (dtype == DType::f32 ? 1e-7 : 1e-6));
          const double unit = dtype == DType::f32 ? 1.2e-7 : dtype == DType::f16 ? kHalfUnit : kBFloat16Unit;
          const double allowed =
              unit * std::fabs(expected) + (of_angle + (dtype == DType::f32 ? 4e-7 : 4e-6) * s * s) / b + 1e-37;
          CAPTURE(dtype);
          CAPTURE(v);
          CAPTURE(a);
          CAPTURE(b);
          const double most = dtype == DType::f16 ? 65504 : 3e38;
          if (std::fabs(expected) < most && a * std::fabs(v) < 1e38)
            CHECK(std::fabs(got[i] - expected) <= allowed + (dtype == DType::f16 ? 6e-8 : 0));
        }
      }
}
