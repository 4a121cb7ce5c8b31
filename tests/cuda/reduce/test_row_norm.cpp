#include "cuda/reduce/row_norm.hpp"

#include <doctest/doctest.h>

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
