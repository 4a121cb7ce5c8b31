#include "cuda/reduce/channel_norm.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/norm.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("rows of all widths agree with f64, also far from zero") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const std::int64_t C : {1, 31, 128, 512, 1000, 1025, 5000})
    for (const double offset : {0.0, 1000.0}) {
      CAPTURE(C);
      CAPTURE(offset);
      const Tensor x = (random_f64({3, C}) + offset).to(DType::f32), weight = random_f64({C}, 2).to(DType::f32);
      const Tensor bias = random_f64({C}, 3).to(DType::f32);
      const auto wide = [](const Tensor& tensor) { return tensor.to(DType::f64); };
      const auto on_gpu = [](const Tensor& tensor) { return tensor.to(Device::cuda()); };
      const Tensor layer = layer_norm(on_gpu(x), on_gpu(weight), on_gpu(bias)).to(Device::cpu());
      CHECK(max_difference(layer, layer_norm(wide(x), wide(weight), wide(bias))) <= 20 * kFloatRounding);
      const Tensor rms = rms_norm(on_gpu(x), on_gpu(weight), 1e-6).to(Device::cpu());
      CHECK(max_difference(rms, rms_norm(wide(x), wide(weight), 1e-6)) <= 20 * kFloatRounding);
      const Tensor exact = layer_norm(on_gpu(wide(x))).to(Device::cpu());
      CHECK(max_difference(exact, layer_norm(wide(x))) <= 1e-10);
    }
}

TEST_CASE("rows of 16 bits have the bits of the f32 result, rounded once") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const NoGradGuard no_grad;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t C : {1, 31, 512, 1025, 5000}) {
      CAPTURE(name_of(dtype));
      CAPTURE(C);
      const auto tensor = [&](const Shape& shape, std::uint64_t seed) {
        return random_f64(shape, seed).to(dtype).to(Device::cuda());
      };
      const Tensor x = tensor({3, C}, 1), weight = tensor({C}, 2), bias = tensor({C}, 3);
      const auto wide = [](const Tensor& narrow) { return narrow.to(DType::f32); };
      CHECK(max_difference(layer_norm(x, weight, bias), layer_norm(wide(x), wide(weight), wide(bias)).to(dtype)) == 0);
      CHECK(max_difference(layer_norm(x), layer_norm(wide(x)).to(dtype)) == 0);
      CHECK(max_difference(rms_norm(x, weight), rms_norm(wide(x), wide(weight)).to(dtype)) == 0);
    }
}
