#include "cuda/runtime.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <thread>

#include "support/skip.hpp"
#include "tensor/backend.hpp"
#include "tensor/device.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

TEST_CASE("a machine without a GPU has no devices and the library says why") {
  CHECK(pp::cuda_device_count() == cuda::device_count());
  if (cuda::device_count() > 0) {
    CHECK(cuda::unavailable_reason().empty());
    CHECK(pp::Device::best() == pp::Device::cuda(0));
    return;
  }
  CHECK_FALSE(cuda::unavailable_reason().empty());
  CHECK(pp::Device::best() == pp::Device::cpu());
  const std::string text = "cuda: expected a device below 0, got cuda:0; " + cuda::unavailable_reason();
  CHECK_THROWS_WITH_AS((void)cuda::properties(0), text.c_str(), pp::DeviceError);
}

TEST_CASE("a failed call names itself, its error and its place, and leaves no error behind") {
  const int line = __LINE__ + 2;
  try {
    CHECK_CUDA(cudaErrorInvalidValue);
    FAIL("nothing thrown");
  } catch (const pp::DeviceError& error) {
    const std::string text =
        "cuda: cudaErrorInvalidValue failed: cudaErrorInvalidValue (invalid argument) at test_runtime.cpp:" +
        std::to_string(line);
    CHECK(error.what() == text);
  }
  // Without a driver every call fails anew.
  if (cuda::device_count() > 0) CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("properties and device scope") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cuda::DeviceProperties& properties = cuda::properties(0);
  CHECK(properties.arch() >= 80);
  CHECK(properties.sm_count > 0);
  CHECK(properties.total_bytes > 0);
  CHECK_THROWS_AS((void)cuda::properties(cuda::device_count()), pp::DeviceError);
  CHECK_THROWS_AS((void)cuda::properties(-1), pp::DeviceError);
  const cuda::DeviceScope scope(0);
  int current = -1;
  CHECK_CUDA(cudaGetDevice(&current));
  CHECK(current == 0);
}

TEST_CASE("streams are the thread's own choice; events order them") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cudaStream_t shared = cuda::current_stream(0);
  cuda::Stream stream(0);
  {
    const cuda::StreamScope scope(stream);
    CHECK(cuda::current_stream(0) == stream.get());
    std::thread([&] { CHECK(cuda::current_stream(0) == shared); }).join();
  }
  CHECK(cuda::current_stream(0) == shared);

  cuda::Event begin(true), end(true);
  begin.record(shared);
  begin.wait_on(stream.get());
  end.record(stream.get());
  end.synchronize();
  CHECK(begin.done());
  CHECK(cuda::Event::elapsed_ms(begin, end) >= 0.0F);
}
