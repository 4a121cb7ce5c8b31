#include <doctest/doctest.h>

#include "tensor/backend.hpp"

namespace pp = polyphase;

TEST_CASE("a build without CUDA has no device and says so") {
  CHECK(pp::cuda_device_count() == 0);
  CHECK_THROWS_WITH_AS((void)pp::cuda_backend(1), "cuda:1: this build of polyphase has no CUDA support; devices: cpu",
                       pp::DeviceError);
}

TEST_CASE("the message reaches those who ask for tensors there") {
  const char* text = "cuda:0: this build of polyphase has no CUDA support; devices: cpu";
  CHECK_THROWS_WITH_AS((void)pp::Tensor::zeros({2}, {.device = pp::Device::cuda()}), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)pp::Tensor::zeros({2}).to(pp::Device::cuda()), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS(pp::DeviceGuard{pp::Device::cuda()}, text, pp::DeviceError);
}
