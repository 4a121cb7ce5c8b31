#include "cuda/pinned.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

// A copy of 64 MiB takes more than a millisecond, so that work that does not wait for it runs before its end.
TEST_CASE("batches arrive complete while the buffer is reused immediately, on any stream") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  constexpr std::int64_t kCount = 1 << 24;
  const cuda::PinnedBuffer buffers[2] = {cuda::PinnedBuffer(kCount * sizeof(float)),
                                         cuda::PinnedBuffer(kCount * sizeof(float))};
  CHECK(buffers[0].bytes() == kCount * sizeof(float));
  const cuda::Stream own;
  std::vector<float> expected(kCount);
  for (int batch = 0; batch < 6; ++batch) {
    CAPTURE(batch);
    const cuda::StreamGuard guard(0, batch % 3 == 0 ? own.get() : cuda::current_stream(0));
    std::iota(expected.begin(), expected.end(), static_cast<float>(batch));
    const cuda::PinnedBuffer& buffer = buffers[batch % 2];
    std::copy(expected.begin(), expected.end(), buffer.as<float>());
    const cuda::Upload upload = cuda::upload_async(buffer, {1024, kCount / 1024});
    const Tensor seen = upload.get().clone();                  // ordered after the copy
    std::fill_n(buffer.as<float>() + kCount - 64, 64, -1.0F);  // waits for the copy, which reads these last
    CHECK(seen.shape() == Shape{1024, kCount / 1024});
    CHECK(seen.to_vector<float>() == expected);
  }
}

TEST_CASE("a batch outlives its buffer and goes to any stream") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  cuda::Upload upload = [] {
    const cuda::PinnedBuffer buffer(64);
    std::fill_n(buffer.as<double>(), 4, 2.5);
    return cuda::upload_async(buffer, {4}, DType::f64);
  }();
  const cuda::Stream stream;
  const cuda::StreamGuard guard(stream);
  CHECK(upload.get().to_vector<double>() == std::vector<double>(4, 2.5));
}

TEST_CASE("an unused upload is dropped, whether its stream still exists or not") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const cuda::PinnedBuffer buffer(std::size_t{16} << 20U);
  cuda::Upload upload;
  {
    const cuda::Stream stream;
    const cuda::StreamGuard guard(stream);
    upload = cuda::upload_async(buffer, {4, 1024, 1024});
  }
  upload = {};
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cuda::upload_async(buffer, {4, 1024, 1024}).get().shape() == Shape{4, 1024, 1024});
}

TEST_CASE("what does not fit, and a device that is not there") {
  CHECK_THROWS_AS(cuda::PinnedBuffer(8, cuda::device_count()), DeviceError);
  CHECK(error_of<DeviceError>([] { return cuda::Upload().get(); }) == "Upload::get: expected an upload, got none");
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const cuda::PinnedBuffer buffer(8);
  CHECK(error_of<ShapeError>([&] { return cuda::upload_async(buffer, {3}).get(); }) ==
        "upload_async: expected at most the buffer's 8 bytes, got (3,) f32 of 12");
  CHECK(cuda::upload_async(cuda::PinnedBuffer(0), {0}).get().numel() == 0);
}
