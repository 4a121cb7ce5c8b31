#pragma once
// Files of torch.save: tensors in dicts, lists and tuples. Nothing of a file is executed.

#include <string>

#include "../layers/module.hpp"

namespace polyphase {

/// What a file of torch.save held.
struct TorchFile {
  /// Named by the keys and positions that lead to them, with dots between: {'generator': {'conv.bias': t}} gives
  /// "generator.conv.bias", [t] gives "0", a lone tensor gives "".
  NamedTensors tensors;
  /// Numbers, texts and truth values of the same containers as JSON text, without the tensors: "{}" where there are none.
  std::string plain;
};

/// Reads a file of torch.save in either format, the ZIP archive (PyTorch 1.6 and later) or the one before. Elements of 8 to 32
/// bits become i64. The file is memory-mapped as load_safetensors() does. Throws FormatError with the file's name, what is
/// wrong and where; a file that needs more than tensors, numbers, texts, dicts, lists and tuples is refused, naming what it
/// needs.
[[nodiscard]] TorchFile load_torch(const std::string& path);

}  // namespace polyphase
