#pragma once
// The safetensors format: named tensors in one file, nothing that can execute. https://github.com/huggingface/safetensors
//
//   8 bytes   header length, little endian
//   header    JSON: {"__metadata__": {...}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//   data      the tensors, row-major, without gaps

#include <map>
#include <string>
#include <string_view>

#include "../layers/module.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase {

/// Free text stored with the tensors.
using Metadata = std::map<std::string, std::string>;

/// The contents of a file: `net.load_state_dict(pp::load_safetensors("model.safetensors").tensors)`.
struct SafetensorsFile {
  NamedTensors tensors;  ///< in the header's order
  Metadata metadata;     ///< empty if the file has none

  /// The tensor of this name, or null.
  [[nodiscard]] const Tensor* find(std::string_view name) const;
  /// The tensor of this name. Throws Error with the name.
  [[nodiscard]] const Tensor& at(std::string_view name) const;
};

/// Reads a file of F32, F64, F16, BF16 and I64 tensors. The file is memory-mapped: on the CPU tensors refer to the mapping, and
/// stay valid for as long as they live; writing to them does not change the file. Tensors that the file does not align to their
/// element size are copied. On another `device` all are copied.
///
/// Validates everything: the header is at most 100 MB and inside the file, valid UTF-8 JSON of exactly the documented form
/// without duplicate names; shapes and offsets agree; the tensors cover the data without holes or overlap. Throws FormatError
/// with the file's name, what is wrong and where; names a dtype that is known but not supported.
[[nodiscard]] SafetensorsFile load_safetensors(const std::string& path, Device device = Device::cpu());

/// Writes tensors of any strides and device, header in the given order, data aligned to the element size. The file appears
/// complete or not at all (io/atomic_file.hpp). Throws FormatError naming the tensor for an undefined tensor, a duplicate or
/// reserved name or a name that is not UTF-8, and with the system's reason if writing fails.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace polyphase
