#pragma once
// The initializers of an ONNX model: its weights. The graph's operations are not read.
// onnx/onnx@v1.15.0:onnx/onnx.proto3; protocol buffers: https://protobuf.dev/programming-guides/encoding

#include <string>

#include "../layers/module.hpp"

namespace polyphase {

/// Reads the initializers, in the file's order. Elements of 8 to 32 bits become i64. The file is memory-mapped as
/// load_safetensors() does. Throws FormatError with the file's name, what is wrong and where: a file that is cut off, an
/// initializer without a name, one whose data does not go with its shape or is in another file, an element type that no Tensor
/// has.
[[nodiscard]] NamedTensors load_onnx(const std::string& path);

}  // namespace polyphase
