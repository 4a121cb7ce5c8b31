#include <doctest/doctest.h>

#include <string>

#include "cuda/cuda.hpp"
#include "cuda/runtime/dry_run.hpp"
#include "device/backend.hpp"

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

TEST_CASE("streams, graphs and memory say so too") {
  namespace cuda = pp::cuda;
  const char* text = "cuda:0: this build of polyphase has no CUDA support; devices: cpu";
  CHECK(cuda::device_count() == 0);
  CHECK(cuda::unavailable_reason() == "this build of polyphase has no CUDA support");
  CHECK_THROWS_WITH_AS(cuda::Stream{}, text, pp::DeviceError);
  CHECK_THROWS_WITH_AS(cuda::retire_stream(0, nullptr), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS(cuda::synchronize(), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::memory_stats(), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::memory_snapshot(), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS(cuda::set_memory_limit(0, 1), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::capture([] {}), text, pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::measure_workspace(0, [](CUstream_st*) {}), text, pp::DeviceError);
  CHECK_FALSE(cuda::capturing());
  CHECK(cuda::host_waits() == 0);
  cuda::on_replay([] {});
}
