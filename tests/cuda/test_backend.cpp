#include "cuda/backend.hpp"

#include <doctest/doctest.h>

#include <string>

#include "cuda/cuda.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("a device that is not there is refused, with the reason") {
  const int count = cuda_device_count();
  const std::string text = error_of<DeviceError>([&] { return &cuda_backend(count); });
  CHECK(text.find("cuda: expected a device below " + std::to_string(count) + ", got cuda:" + std::to_string(count)) == 0);
  CHECK(text.find(cuda::unavailable_reason()) != std::string::npos);
}

TEST_CASE("one backend a device, with an allocator of its own") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  CHECK(&gpu() == &cuda_backend(0));
  const std::uint64_t before = gpu().allocator().stats().allocations;
  const Tensor x = Tensor::ones({10}, {.device = Device::cuda()});
  CHECK(gpu().allocator().stats().allocations == before + 1);
  gpu().synchronize();
  CHECK(x.to_vector<float>() == std::vector<float>(10, 1));
}

TEST_CASE("elements go there and come back in every dtype") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes) {
    const Tensor x = counting({3, 7}, dtype), there = x.to(Device::cuda());
    CHECK(there.device() == Device::cuda(0));
    CHECK(different(x, there) == 0);
    CHECK(worst_difference(x.transpose(0, 1), there.transpose(0, 1)) == 0);
    CHECK(there.select(0, 1).select(0, 2).item() == x.select(0, 1).select(0, 2).item());
  }
}

TEST_CASE("convolutions of both layers reach the GPU") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const ConvProblem p{
      .N = 2, .C_in = 3, .C_out = 4, .L_in = 9, .L_out = 18, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .dtype = DType::f64};
  const Tensor x = counting({2, 3, 9}, DType::f64), w = counting({3, 4, 4}, DType::f64), bias = counting({4}, DType::f64);
  const Tensor y = poisoned({2, 4, 18}, DType::f64), there = mirrored(y);
  host().conv_forward(p, x, w, bias, y, Algorithm::automatic, Precision::fp32);
  gpu().conv_forward(p, mirrored(x), mirrored(w), mirrored(bias), there, Algorithm::automatic, Precision::fp32);
  CHECK(different(y, there) == 0);
  CHECK_FALSE(gpu().can_implement(p, ConvDirection::forward, Algorithm::automatic, Precision::fp32).has_value());
}
