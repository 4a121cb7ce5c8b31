#include "cuda/linear/blas.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "cuda/cuda.hpp"
#include "support/skip.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

TEST_CASE("a failed call names itself, its error and its place") {
  const int line = __LINE__ + 2;
  try {
    CHECK_CUBLAS(CUBLAS_STATUS_INVALID_VALUE);
    FAIL("nothing thrown");
  } catch (const pp::DeviceError& error) {
    const std::string text = error.what();
    CHECK(text.find("cuda: CUBLAS_STATUS_INVALID_VALUE failed: CUBLAS_STATUS_INVALID_VALUE (") == 0);
    CHECK(text.find(") at test_blas.cpp:" + std::to_string(line)) != std::string::npos);
  }
}

TEST_CASE("a handle is the thread's own, on the stream asked for, and its workspace goes back") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cuda::DeviceScope device(0);
  const cuda::Stream stream(0);
  const std::size_t live = cuda::memory_stats(0).live_bytes;
  cublasHandle_t mine = nullptr, other = nullptr;
  {
    const cuda::BlasScope scope(0, stream.get());
    mine = scope.handle();
    cudaStream_t current = nullptr;
    CHECK_CUBLAS(cublasGetStream(mine, &current));
    CHECK(current == stream.get());
    CHECK(cuda::memory_stats(0).live_bytes > live);
  }
  CHECK(cuda::memory_stats(0).live_bytes == live);
  CHECK(cuda::blas_handle(0, stream.get()).handle() == mine);
  std::thread([&] {
    const cuda::DeviceScope there(0);
    other = cuda::BlasScope(0, stream.get()).handle();
  }).join();
  CHECK(other != nullptr);
}
