#pragma once
// Tensors over the bytes of a mapped file. Internal.

#include <cstdint>
#include <memory>
#include <optional>

#include "io/mapped_file.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::io {

/// A tensor over the mapped bytes at `data`, which hold its elements; a copy where they are not aligned. Every tensor has a
/// storage of its own, so that an in-place write to one does not count as a write to all.
[[nodiscard]] Tensor file_tensor(const std::shared_ptr<MappedFile>& file, char* data, DType dtype, const Shape& shape);

/// The element types of files: a Tensor's own, and those of whole numbers and truth values, which become i64.
enum class FileType : std::uint8_t { f32, f64, f16, bf16, i64, i32, i16, i8, u8, boolean };
/// Bytes of one element.
[[nodiscard]] std::size_t size_of(FileType type);
/// What a Tensor holds its elements as.
[[nodiscard]] DType tensor_dtype(FileType type);
/// As above; whole numbers are converted to i64.
[[nodiscard]] Tensor file_tensor(const std::shared_ptr<MappedFile>& file, char* data, FileType type, const Shape& shape);

/// The number of elements, or nothing where that is past 2^62 or a size is negative.
[[nodiscard]] std::optional<std::int64_t> checked_numel(const Shape& shape);

}  // namespace polyphase::io
