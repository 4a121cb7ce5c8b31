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

/// Throws a DeviceError if the driver refuses it.
[[nodiscard]] CUtensorMap encode_tensor_map(const TensorMapOf& of);

}  // namespace polyphase::cuda::tensor_core
