#include "io/onnx.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "io/byte_reader.hpp"
#include "io/file_tensor.hpp"
#include "io/safetensors_header.hpp"

namespace polyphase {
namespace {

using io::ByteReader;
using io::FileType;

constexpr const char* kLoadOnnx = "load_onnx";

enum Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
// Numbers of fields in ModelProto, GraphProto and TensorProto.
enum ModelField : std::uint8_t { kGraph = 7 };
enum GraphField : std::uint8_t { kInitializer = 5 };
enum TensorField : std::uint8_t {
  kDims = 1,
  kDataType = 2,
  kFloats = 4,
  kInt32s = 5,
  kInt64s = 7,
  kName = 8,
  kRaw = 9,
  kDoubles = 10,
  kLocation = 14
};

std::uint64_t varint(ByteReader& reader) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = reader.number<std::uint8_t>();
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  reader.fail("a number has more than 64 bits");
}

/// A field: a number, or the bytes of a text or a message.
struct Field {
  std::uint64_t number = 0;
  std::uint8_t wire = kVarint;
  std::uint64_t value = 0;
  std::optional<ByteReader> bytes{};

  /// The bytes. Throws FormatError where it is a number.
  ByteReader& message(const ByteReader& reader) {
    reader.expect(bytes.has_value(), "expected bytes in the field ", number, ", got a number");
    return *bytes;
  }
};

Field next_field(ByteReader& reader) {
  const std::uint64_t tag = varint(reader);
  Field field{tag >> 3U, static_cast<std::uint8_t>(tag & 7U)};
  switch (field.wire) {
    case kVarint:
      field.value = varint(reader);
      break;
    case kFixed64:
      field.value = reader.number<std::uint64_t>();
      break;
    case kFixed32:
      field.value = reader.number<std::uint32_t>();
      break;
    case kBytes:
      field.bytes = reader.part(varint(reader));
      break;
    default:
      reader.fail(concat("expected a field of ONNX, got one of the wire type ", static_cast<int>(field.wire)));
  }
  return field;
}

/// TensorProto.DataType.
std::optional<FileType> type_of(std::uint64_t number) {
  switch (number) {
    case 1:
      return FileType::f32;
    case 2:
      return FileType::u8;
    case 3:
      return FileType::i8;
    case 5:
      return FileType::i16;
    case 6:
      return FileType::i32;
    case 7:
      return FileType::i64;
    case 9:
      return FileType::boolean;
    case 10:
      return FileType::f16;
    case 11:
      return FileType::f64;
    case 16:
      return FileType::bf16;
    default:
      return std::nullopt;
  }
}

/// A TensorProto as it stands in the file.
class Initializer {
 public:
  explicit Initializer(ByteReader reader) : end_(reader) {
    while (!reader.is_at_end()) read(reader);
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] Tensor tensor(const std::shared_ptr<MappedFile>& file) const {
    const auto expect = [&](bool condition, const auto&... what) {
      end_.expect(condition, "initializer ", io::in_quotes(name_), ": ", what...);
    };
    expect(!is_elsewhere_, "its data is in another file, which is not read");
    const std::optional<FileType> type = type_of(type_);
    expect(type.has_value(), "expected floating-point or whole numbers, got the data type ", type_);
    const std::optional<std::int64_t> numel = io::checked_numel(dims_);
    const std::size_t width = size_of(*type);
    const std::optional<ByteReader>& data = raw_ ? raw_ : list_of(*type);
    const std::size_t bytes = data ? data->left() : 0;
    expect(numel && static_cast<std::uint64_t>(*numel) <= bytes / width && static_cast<std::size_t>(*numel) * width == bytes,
           "expected ", dims_, " elements of ", width, " bytes, got ", bytes, " bytes");
    const Shape& shape = dims_;
    if (bytes == 0) return Tensor::empty(shape, {.dtype = io::tensor_dtype(*type), .device = Device::cpu()});
    return file_tensor(file, file->data() + data->offset(), *type, shape);
  }

 private:
  void read(ByteReader& reader) {
    Field field = next_field(reader);
    switch (field.number) {
      case kDims:
        if (field.wire == kBytes) {
          for (ByteReader& packed = *field.bytes; !packed.is_at_end();) add_dim(packed, varint(packed));
        } else {
          add_dim(reader, field.value);
        }
        break;
      case kDataType:
        type_ = field.value;
        break;
      case kName: {
        ByteReader& text = field.message(reader);
        name_ = text.take(text.left());
        break;
      }
      case kRaw:
        raw_ = field.message(reader);
        break;
      case kFloats:
        floats_ = field.message(reader);
        break;
      case kDoubles:
        doubles_ = field.message(reader);
        break;
      case kInt32s:
      case kInt64s:
        reader.fail("an initializer keeps whole numbers in a list, expected raw data");
      case kLocation:
        is_elsewhere_ = field.value != 0;
        break;
      default:
        break;
    }
  }

  void add_dim(const ByteReader& reader, std::uint64_t size) {
    reader.expect(dims_.rank() < kMaxRank, "an initializer has more than ", kMaxRank, " dimensions");
    reader.expect(size <= INT64_MAX, "an initializer has the size ", size);
    dims_.push_back(static_cast<std::int64_t>(size));
  }

  [[nodiscard]] const std::optional<ByteReader>& list_of(FileType type) const {
    static const std::optional<ByteReader> kNone;
    return type == FileType::f32 ? floats_ : type == FileType::f64 ? doubles_ : kNone;
  }

  ByteReader end_;  // for error texts
  std::string name_;
  Shape dims_;
  std::uint64_t type_ = 0;
  bool is_elsewhere_ = false;
  std::optional<ByteReader> raw_, floats_, doubles_;
};

}  // namespace

NamedTensors load_onnx(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(kLoadOnnx, path);
  ByteReader model(kLoadOnnx, path, {file->data(), file->size()});
  NamedTensors tensors;
  std::set<std::string> names;
  bool has_graph = false;
  while (!model.is_at_end()) {
    Field field = next_field(model);
    if (field.number != kGraph) continue;
    has_graph = true;
    for (ByteReader& graph = field.message(model); !graph.is_at_end();) {
      Field inside = next_field(graph);
      if (inside.number != kInitializer) continue;
      const Initializer initializer(inside.message(graph));
      graph.expect(!initializer.name().empty(), "an initializer has no name");
      graph.expect(names.insert(initializer.name()).second, "the initializer ", io::in_quotes(initializer.name()),
                   " is there twice");
      tensors.emplace_back(initializer.name(), initializer.tensor(file));
    }
  }
  model.expect(has_graph, "expected a graph of ONNX");
  return tensors;
}

}  // namespace polyphase
