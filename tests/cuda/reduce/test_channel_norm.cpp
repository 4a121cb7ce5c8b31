#include "cuda/reduce/channel_norm.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/norm.hpp"
#include "ops/reduce.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("channels of all counts agree with f64, also far from zero, whatever positions are next to them") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const NoGradGuard no_grad;
  for (const std::int64_t C : {1, 31, 64, 512, 513, 1100})
    for (const double offset : {0.0, 1000.0}) {
      CAPTURE(C);
      CAPTURE(offset);
      const Tensor many = (random_f64({40, C, 33}) + offset).to(DType::f32), few = many.narrow(0, 37, 3).contiguous();
      const Tensor weight = random_f64({C}, 2).to(DType::f32), bias = random_f64({C}, 3).to(DType::f32);
      const auto wide = [](const Tensor& tensor) { return tensor.to(DType::f64); };
      const auto on_gpu = [](const Tensor& tensor) { return tensor.to(Device::cuda()); };
      const auto norm = [&](const Tensor& x) { return layer_norm(on_gpu(x), on_gpu(weight), on_gpu(bias), 1e-5, 1); };
      const Tensor y = norm(few).to(Device::cpu());
      CHECK(max_difference(y, layer_norm(wide(few), wide(weight), wide(bias), 1e-5, 1)) <= 20 * kFloatRounding);
      CHECK(max_difference(norm(many).narrow(0, 37, 3).to(Device::cpu()), y) == 0);
      for (const std::int64_t length : {1, 7}) {
        CAPTURE(length);
        CHECK(max_difference(norm(few.narrow(2, 5, length)).to(Device::cpu()), y.narrow(2, 5, length)) == 0);
      }
      const Tensor exact = layer_norm(on_gpu(wide(few)), {}, {}, 1e-5, 1).to(Device::cpu());
      CHECK(max_difference(exact, layer_norm(wide(few), {}, {}, 1e-5, 1)) <= 1e-10);
    }
}

TEST_CASE("channels of 16 bits have the bits of the f32 result, rounded once") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const NoGradGuard no_grad;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t C : {1, 31, 512, 1100}) {
      CAPTURE(name_of(dtype));
      CAPTURE(C);
      const auto tensor = [&](const Shape& shape, std::uint64_t seed) {
        return random_f64(shape, seed).to(dtype).to(Device::cuda());
      };
      const Tensor x = tensor({3, C, 33}, 1), weight = tensor({C}, 2), bias = tensor({C}, 3);
      const auto wide = [](const Tensor& narrow) { return narrow.to(DType::f32); };
      const Tensor expected = layer_norm(wide(x), wide(weight), wide(bias), 1e-5, 1).to(dtype);
      CHECK(max_difference(layer_norm(x, weight, bias, 1e-5, 1), expected) == 0);
    }
}

TEST_CASE("gradients of a norm over channels agree with those over rows in f64") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = random_f64({2, 40, 13}).to(DType::f32), weight = random_f64({40}, 2).to(DType::f32);
  const Tensor bias = random_f64({40}, 3).to(DType::f32), g = random_f64({2, 40, 13}, 4).to(DType::f32);
  const auto gradients = [&](Device device, DType dtype, bool over_rows) {
    const auto leaf = [&](const Tensor& tensor) {
      Tensor made = tensor.to(dtype).to(device);
      made.set_requires_grad(true);
      return made;
    };
    const Tensor of_x = leaf(x), of_weight = leaf(weight), of_bias = leaf(bias);
    const Tensor y = over_rows ? layer_norm(of_x.transpose(1, 2), of_weight, of_bias).transpose(1, 2)
                               : layer_norm(of_x, of_weight, of_bias, 1e-5, 1);
    sum(mul(y, g.to(dtype).to(device))).backward();
    return std::vector<Tensor>{of_x.grad().to(Device::cpu()), of_weight.grad().to(Device::cpu()),
                               of_bias.grad().to(Device::cpu())};
  };
  const std::vector<Tensor> expected = gradients(Device::cpu(), DType::f64, true);
  const std::vector<Tensor> got = gradients(Device::cuda(), DType::f32, false);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(max_difference(got[i], expected[i]) <= 100 * kFloatRounding);
}
