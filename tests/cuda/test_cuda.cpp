#include "cuda/cuda.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <vector>

#include "cuda/delay.hpp"
#include "cuda/memory/allocator.hpp"
#include "ops/elementwise.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"
#include "tensor/tensor.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

TEST_CASE("without a GPU everything says what is missing") {
  if (cuda::device_count() > 0) SKIP_TEST("there is a CUDA device");
  const std::string text = "cuda: expected a device below 0, got cuda:0; " + cuda::unavailable_reason();
  CHECK_THROWS_WITH_AS(cuda::Stream{0}, text.c_str(), pp::DeviceError);
  CHECK_THROWS_WITH_AS(cuda::retire_stream(0, nullptr), text.c_str(), pp::DeviceError);
  CHECK_THROWS_WITH_AS(cuda::synchronize(), text.c_str(), pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::memory_snapshot(), text.c_str(), pp::DeviceError);
  CHECK_THROWS_WITH_AS(cuda::set_memory_limit(0, 1), text.c_str(), pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::capture([] {}), text.c_str(), pp::DeviceError);
  CHECK_FALSE(cuda::capturing());
}

TEST_CASE("statistics, snapshot and limit of the device") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::MemoryStats before = cuda::memory_stats();
  {
    const cuda::Buffer buffer(10000, 0);
    CHECK(cuda::memory_stats().live_bytes > before.live_bytes);
    CHECK(cuda::memory_stats().live_blocks == before.live_blocks + 1);
    const auto json = nlohmann::json::parse(cuda::memory_snapshot());
    CHECK(json["stats"]["live_bytes"] == cuda::memory_stats().live_bytes);
    cuda::set_memory_limit(0, 1);
    CHECK_THROWS_AS(cuda::Buffer(std::size_t{64} << 20U, 0), pp::OutOfMemory);
    cuda::set_memory_limit(0, std::size_t{1} << 62U);
  }
  CHECK(cuda::memory_stats().live_bytes == before.live_bytes);
  cuda::synchronize();
}

TEST_CASE("a guard with a null stream sends work to CUDA's default stream") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::Tensor x = pp::Tensor::zeros({1000}, {.device = pp::Device::cuda()});
  CHECK((x + 1.0).to_vector<float>().front() == 1);  // the first time takes longer than the delay
  const pp::testing::Delay delay(nullptr);
  CHECK_CUDA(cudaMemsetAsync(x.raw(), 0x3f, 1000 * sizeof(float), nullptr));
  const cuda::StreamGuard guard(0, nullptr);
  const pp::Tensor y = x + 1.0;
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  const std::vector<float> values = y.to_vector<float>();
  CHECK(delay.over());
  CHECK(values == std::vector<float>(1000, std::bit_cast<float>(0x3f3f3f3f) + 1));
}

TEST_CASE("an application's stream that ends is waited for; its memory is returned and its tensors stay valid") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  constexpr std::size_t kBytes = std::size_t{64} << 20U;
  const pp::TensorOptions on_gpu{.device = pp::Device::cuda()};
  cudaStream_t own = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
  const pp::Tensor kept = [&] {
    const cuda::StreamGuard guard(0, own);
    (void)pp::Tensor::empty({kBytes / sizeof(float)}, on_gpu);
    return pp::Tensor::full({3}, 2.5, on_gpu);
  }();
  const std::size_t cached = cuda::memory_stats().cached_bytes;
  const pp::testing::Delay delay(own);
  cuda::retire_stream(0, own);
  CHECK(delay.over());
  CHECK(cuda::memory_stats().cached_bytes <= cached - std::min(cached, kBytes));  // plain cudaMalloc caches nothing
  CHECK_CUDA(cudaStreamDestroy(own));
  CHECK(kept.to_vector<float>() == std::vector<float>(3, 2.5F));
  cuda::allocator(0).trim();
  CHECK(cudaGetLastError() == cudaSuccess);
}
