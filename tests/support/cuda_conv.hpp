#pragma once
// Runs convolutions of conv.hpp on a GPU: uploads arrays, poisons the output, checks the memory around it.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "cuda/conv/conv.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/conv.hpp"

namespace polyphase::testing {

inline constexpr std::int64_t kGuard = 64;  // elements before and after an array that must stay as they are

/// How many of `count` elements still have every bit set, as before the call. No kernel writes such a NaN.
inline std::int64_t count_unwritten(const void* elements, std::int64_t count, std::size_t bytes_each) {
  const auto* element = static_cast<const unsigned char*>(elements);
  std::int64_t unwritten = 0;
  for (std::int64_t i = 0; i < count; ++i, element += bytes_each)
    unwritten += std::all_of(element, element + bytes_each, [](unsigned char byte) { return byte == 0xff; }) ? 1 : 0;
  return unwritten;
}

/// Bytes of device memory, freed at the end of the scope.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) { CHECK_CUDA(cudaMalloc(&data_, bytes)); }
  ~DeviceBytes() { (void)cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// A host array's copy on the device between two guards, `misalignment` elements past an aligned address.
template <class E>
class DeviceArray {
 public:
  DeviceArray(const Array<E>& host, std::int64_t misalignment)
      : size_(host.size()),
        offset_(kGuard + misalignment),
        image_(static_cast<std::size_t>(size_ + offset_ + kGuard)),
        memory_(image_.size() * sizeof(E)) {
    std::memset(static_cast<void*>(image_.data()), 0xff, image_.size() * sizeof(E));
    if (size_ > 0)
      std::memcpy(static_cast<void*>(image_.data() + offset_), host.data(), static_cast<std::size_t>(size_) * sizeof(E));
    CHECK_CUDA(cudaMemcpy(memory_.data(), image_.data(), image_.size() * sizeof(E), cudaMemcpyHostToDevice));
    // cudaMemcpy from pageable memory may return before the data arrives, and our streams do not wait for the default one.
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  [[nodiscard]] E* data() const { return static_cast<E*>(memory_.data()) + offset_; }
  /// The device's values; `intact` says whether the guards are unchanged.
  [[nodiscard]] Array<E> download(bool& intact) const {
    std::vector<E> now(image_.size());
    CHECK_CUDA(cudaMemcpy(now.data(), memory_.data(), now.size() * sizeof(E), cudaMemcpyDeviceToHost));
    const auto same = [&](std::int64_t begin, std::int64_t end) {
      return std::memcmp(now.data() + begin, image_.data() + begin, static_cast<std::size_t>(end - begin) * sizeof(E)) == 0;
    };
    intact = same(0, offset_) && same(offset_ + size_, static_cast<std::int64_t>(now.size()));
    Array<E> result(size_);
    if (size_ > 0)
      std::memcpy(static_cast<void*>(result.data()), now.data() + offset_, static_cast<std::size_t>(size_) * sizeof(E));
    return result;
  }

 private:
  std::int64_t size_, offset_;
  std::vector<E> image_;
  DeviceBytes memory_;
};

/// What one call runs: operands and output as device pointers, on the given stream.
struct GpuCall {
  const ConvProblem& problem;
  ConvDirection direction;
  const void *first, *second, *bias;
  void* out;
  cudaStream_t stream;
};

/// The call through cuda/conv/conv.hpp.
inline auto by_algorithm(Algorithm algorithm, Precision precision = Precision::fp32) {
  return [=](const GpuCall& call) {
    switch (call.direction) {
      case ConvDirection::forward:
        return cuda::conv_forward(call.problem, call.first, call.second, call.bias, call.out, algorithm, precision, 0,
                                  call.stream);
      case ConvDirection::dgrad:
        return cuda::conv_dgrad(call.problem, call.first, call.second, call.bias, call.out, algorithm, precision, 0,
                                call.stream);
      case ConvDirection::wgrad:
        return cuda::conv_wgrad(call.problem, call.first, call.second, call.out, algorithm, precision, 0, call.stream);
    }
  };
}

/// One direction of `arrays` on GPU 0; `intact` as in DeviceArray. Checks that every element was written.
template <class E, class Call>
Array<E> run_on_gpu(const ConvArrays<E>& arrays, ConvDirection direction, const Call& call, bool& intact, bool with_bias = true,
                    std::int64_t misalignment = 0) {
  const bool is_forward = direction == ConvDirection::forward;
  const Array<E>& first = direction == ConvDirection::dgrad ? arrays.y : arrays.x;
  const Array<E>& second = direction == ConvDirection::wgrad ? arrays.y : arrays.w;
  const Array<E>& bias = is_forward ? arrays.bias_out : arrays.bias_in;
  Array<E> out(is_forward ? arrays.y.size() : direction == ConvDirection::dgrad ? arrays.x.size() : arrays.w.size());
  out.poison();
  const DeviceArray<E> a(first, misalignment), b(second, misalignment), c(bias, misalignment), result(out, misalignment);
  const cudaStream_t stream = cuda::current_stream(0);
  call(GpuCall{arrays.p, direction, a.data(), b.data(), with_bias ? c.data() : nullptr, result.data(), stream});
  CHECK_CUDA(cudaStreamSynchronize(stream));
  Array<E> got = result.download(intact);
  const std::int64_t unwritten = count_unwritten(got.data(), got.size(), sizeof(E));
  CHECK_MESSAGE(unwritten == 0, arrays.p, ' ', direction, ": elements left as they were");
  return got;
}

}  // namespace polyphase::testing
