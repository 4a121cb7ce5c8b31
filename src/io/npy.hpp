#pragma once
// NumPy's .npy format: one array in a file. https://numpy.org/neps/nep-0001-npy-format.html

#include <string>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Reads an array of float16, float32, float64 or whole numbers; bool, int8, uint8, int16 and int32 become i64. Little endian,
/// row-major or Fortran order, formats 1 to 3. The file is memory-mapped as load_safetensors() does. Throws FormatError with
/// the file's name and what is wrong.
[[nodiscard]] Tensor load_npy(const std::string& path);

/// The same bytes in a string; bf16 is written as float32. Throws Error on an undefined tensor.
[[nodiscard]] std::string to_npy(const Tensor& tensor);
/// Writes to_npy(). The file appears whole or not at all. Throws FormatError with the system's reason.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace polyphase
