#pragma once
// The same tensors on the host and on a GPU, with the same layouts, and comparisons of results.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "device/backend.hpp"
#include "support/helpers.hpp"

namespace polyphase::testing {

inline bool has_gpu() { return device_count(DeviceType::cuda) > 0; }
inline Backend& gpu() { return backend_of(Device::cuda()); }
inline Backend& host() { return backend_of(Device::cpu()); }

/// A view like `tensor`, strides and offset included, of a copy of its whole storage on the GPU.
inline Tensor mirrored(const Tensor& tensor) {
  Storage storage(tensor.storage().bytes(), Device::cuda());
  gpu().copy_from_host(storage.data(), tensor.storage().data(), tensor.storage().bytes());
  return Tensor::over(storage, tensor.shape(), tensor.strides(), tensor.offset(), tensor.dtype());
}

/// Every bit set: NaN, or -1 in i64. Starts `misalignment` elements after an aligned address and has three more elements after
/// it.
inline Tensor poisoned(const Shape& shape, DType dtype, std::int64_t misalignment = 0) {
  const auto elements = static_cast<std::size_t>(shape.numel() + misalignment + 3);
  Storage storage(elements * size_of(dtype), Device::cpu());
  std::memset(storage.data(), 0xff, storage.bytes());
  return Tensor::over(storage, shape, contiguous_strides(shape), misalignment, dtype);
}

/// Poisoned storage for any view: `view(base)` is what is written.
template <class View>
Tensor poisoned_view(const Shape& base, DType dtype, const View& view) {
  return view(poisoned(base, dtype));
}

/// Elements of the two whole storages, also outside of the views, that differ in their bits. All NaNs count as equal.
inline std::int64_t different(const Tensor& on_host, const Tensor& on_gpu) {
  const std::size_t bytes = on_host.storage().bytes();
  std::vector<char> back(bytes);
  gpu().copy_to_host(back.data(), on_gpu.storage().data(), bytes);
  std::int64_t count = 0;
  dispatch(on_host.dtype(), [&]<class T>(T) {
    const auto number = [](const T& value) {
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        return static_cast<double>(static_cast<float>(value));
      else
        return static_cast<double>(value);
    };
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
      T a, b;
      std::memcpy(&a, static_cast<const char*>(on_host.storage().data()) + i * sizeof(T), sizeof(T));
      std::memcpy(&b, back.data() + i * sizeof(T), sizeof(T));
      const bool same = std::memcmp(&a, &b, sizeof(T)) == 0 || (std::isnan(number(a)) && std::isnan(number(b)));
      count += same ? 0 : 1;
    }
  });
  return count;
}

/// The largest |difference| over the largest |expected|, of two tensors of one shape; infinity if there is a NaN.
inline double relative_to_largest(const Tensor& expected, const Tensor& got) {
  double largest = 0;
  for (const double value : expected.detach().to(DType::f64).to_vector<double>()) largest = std::max(largest, std::abs(value));
  return max_difference(expected, got) / largest;
}

/// The largest |a - b| / max(1, |a|) of two tensors of one shape; infinity if infinities or NaNs differ.
inline double worst_difference(const Tensor& expected, const Tensor& got) {
  if (!(expected.shape() == got.shape())) return std::numeric_limits<double>::infinity();
  const std::vector<double> a = expected.detach().cpu().to(DType::f64).to_vector<double>();
  const std::vector<double> b = got.detach().cpu().to(DType::f64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double difference = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(a[i]));
    if (!(difference <= worst)) worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
  }
  return worst;
}

inline constexpr DType kAllTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64};
inline constexpr DType kFloatTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

/// -100, -99, ... in any dtype: exact in all of them.
inline Tensor counting(const Shape& shape, DType dtype) {
  Tensor numbers = Tensor::empty(shape, {.dtype = DType::i64, .device = Device::cpu()});
  for (std::int64_t i = 0; i < numbers.numel(); ++i) numbers.data<std::int64_t>()[i] = i % 251 - 100;
  return numbers.to(dtype);
}

}  // namespace polyphase::testing
