#include "io/file_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace polyphase::io {
namespace {

template <class Number>
Tensor widened(const char* data, const Shape& shape) {
  Tensor tensor = Tensor::empty(shape, {.dtype = DType::i64, .device = Device::cpu()});
  auto* const out = tensor.data<std::int64_t>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    Number value;
    std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof value, sizeof value);
    out[i] = value;
  }
  return tensor;
}

}  // namespace

Tensor file_tensor(const std::shared_ptr<MappedFile>& file, char* data, DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * polyphase::size_of(dtype);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % polyphase::size_of(dtype) == 0;
  if (bytes == 0 || !is_aligned) {
    Tensor copy = Tensor::empty(shape, {.dtype = dtype, .device = Device::cpu()});
    if (bytes != 0) std::memcpy(copy.raw(), data, bytes);
    return copy;
  }
  Storage storage(data, bytes, Device::cpu(), [file] {});
  return Tensor::over(std::move(storage), shape, contiguous_strides(shape), 0, dtype);
}

std::size_t size_of(FileType type) {
  switch (type) {
    case FileType::f64:
    case FileType::i64:
      return 8;
    case FileType::f32:
    case FileType::i32:
      return 4;
    case FileType::f16:
    case FileType::bf16:
    case FileType::i16:
      return 2;
    default:
      return 1;
  }
}

DType tensor_dtype(FileType type) {
  switch (type) {
    case FileType::f32:
      return DType::f32;
    case FileType::f64:
      return DType::f64;
    case FileType::f16:
      return DType::f16;
    case FileType::bf16:
      return DType::bf16;
    default:
      return DType::i64;
  }
}

Tensor file_tensor(const std::shared_ptr<MappedFile>& file, char* data, FileType type, const Shape& shape) {
  switch (type) {
    case FileType::i32:
      return widened<std::int32_t>(data, shape);
    case FileType::i16:
      return widened<std::int16_t>(data, shape);
    case FileType::i8:
      return widened<std::int8_t>(data, shape);
    case FileType::u8:
    case FileType::boolean:
      return widened<std::uint8_t>(data, shape);
    default:
      return file_tensor(file, data, tensor_dtype(type), shape);
  }
}

std::optional<std::int64_t> checked_numel(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; })) return std::nullopt;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size == 0; })) return 0;
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    if (product > kMost / size) return std::nullopt;
    product *= size;
  }
  return product;
}

}  // namespace polyphase::io
