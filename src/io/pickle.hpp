#pragma once
// The part of Python's pickle format that torch.save writes for tensors in plain containers. Internal.
//
// Reading executes nothing. A pickle names functions to call; here six names are known, and the reader makes their objects
// (a storage, a tensor, an ordered dict, ...), and every other name is refused. Opcodes:
// python/cpython@v3.11.0:Lib/pickletools.py. What PyTorch writes: pytorch/pytorch@v2.1.0:torch/serialization.py, _utils.py.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/byte_reader.hpp"
#include "io/file_tensor.hpp"

namespace polyphase::io {

struct PickleValue;

struct PickleNone {};
/// A list, a tuple or a torch.Size.
struct PickleList {
  std::vector<const PickleValue*> items{};
};
/// In the order of insertion; a key may come twice, then the later one counts.
struct PickleDict {
  std::vector<std::pair<const PickleValue*, const PickleValue*>> items{};
};
/// One of the names that are known.
struct PickleGlobal {
  std::string_view name;
};
/// The elements of tensors, which are outside of the pickle.
struct PickleStorage {
  FileType type = FileType::f32;
  std::string key{};
  std::int64_t numel = 0;
};
/// A view of a storage, inside it.
struct PickleTensor {
  const PickleStorage* storage = nullptr;
  std::int64_t offset = 0;  ///< in elements, as strides
  Shape shape{};
  Shape strides{};
  std::int64_t numel = 0;
};

struct PickleValue {
  std::variant<PickleNone, bool, std::int64_t, double, std::string, PickleList, PickleDict, PickleGlobal, PickleStorage,
               PickleTensor>
      content;

  template <class Kind>
  [[nodiscard]] const Kind* as() const {
    return std::get_if<Kind>(&content);
  }
};

/// The value of one pickle and all that it refers to. Values may refer to each other in a circle, as Python's can.
class Pickle {
 public:
  /// Reads up to the end of the pickle at the reader's position. Throws FormatError.
  explicit Pickle(ByteReader& reader);

  [[nodiscard]] const PickleValue& root() const { return *root_; }

 private:
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace polyphase::io
