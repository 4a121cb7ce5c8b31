#pragma once
// Tensor maps of the driver, through which TMA copies boxes. Host only.

#include <cuda.h>

#include <cstdint>

namespace polyphase::cuda::tensor_core {

/// What a tensor map describes: rows of numbers, in boxes.
struct TensorMapOf {
  std::uint64_t address;
  std::uint64_t numbers, rows, samples;
  std::uint64_t row_bytes, sample_bytes;  // pitches
  std::uint32_t box_numbers, box_rows, box_samples = 1;
  int bytes, offset;
  bool swizzled;
};

/// An array of contiguous rows.
struct MapRows {
  const void* array;
  std::int64_t rows, length;
  int bytes;  // of a number
};
/// The rows of an array that begin alike: own, own + classes, ... They are read from the multiple of `boundary` bytes before
/// their first number on, which is number `offset` then. A box has `width` numbers and, of `box_rows` rows of the array, those
/// of the class.
[[nodiscard]] TensorMapOf class_map_of(const MapRows& of, int own, int classes, std::uint64_t boundary, int width,
                                       int box_rows);

/// Throws a DeviceError where the driver refuses it.
[[nodiscard]] CUtensorMap encode_tensor_map(const TensorMapOf& of);

}  // namespace polyphase::cuda::tensor_core
