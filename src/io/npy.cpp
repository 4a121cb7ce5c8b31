#include "io/npy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/byte_reader.hpp"
#include "io/file_tensor.hpp"
#include "io/safetensors_header.hpp"

namespace polyphase {
namespace {

constexpr const char* kLoad = "load_npy";
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the data in the file, as NumPy has it

using io::FileType;
constexpr std::array<std::pair<std::string_view, FileType>, 9> kTypes{{{"<f4", FileType::f32},
                                                                       {"<f8", FileType::f64},
                                                                       {"<f2", FileType::f16},
                                                                       {"<i8", FileType::i64},
                                                                       {"<i4", FileType::i32},
                                                                       {"<i2", FileType::i16},
                                                                       {"|i1", FileType::i8},
                                                                       {"|u1", FileType::u8},
                                                                       {"|b1", FileType::boolean}}};

struct Header {
  FileType type = FileType::f32;
  bool is_fortran = false;
  Shape shape;
};

/// Reads the one form of Python literal that a header has: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderReader {
 public:
  HeaderReader(const io::ByteReader& file, std::string_view text) : file_(file), text_(text) {}

  Header read() {
    Header header;
    std::array<bool, 3> seen{};
    symbol('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      symbol(':');
      const std::size_t index = key == "descr" ? 0U : key == "fortran_order" ? 1U : key == "shape" ? 2U : 3U;
      expect(index < 3 && !seen[index], concat("an unexpected key ", io::in_quotes(key)));
      seen[index] = true;
      if (index == 0) header.type = type(quoted());
      if (index == 1) header.is_fortran = truth();
      if (index == 2) header.shape = shape();
      if (!accept(',')) {
        symbol('}');
        break;
      }
    }
    expect(seen == std::array{true, true, true}, "expected descr, fortran_order and shape");
    expect(text_.find_first_not_of(" \n") == text_.npos, "data after the header's end");
    return header;
  }

 private:
  void expect(bool condition, const std::string& what) const { file_.expect(condition, "header: ", what); }
  void skip_spaces() { text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size())); }
  bool accept(char symbol) {
    skip_spaces();
    if (!text_.starts_with(symbol)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void symbol(char wanted) {
    expect(accept(wanted), concat("expected '", wanted, "' before ", io::in_quotes(text_.substr(0, 20))));
  }

  std::string_view quoted() {
    skip_spaces();
    const char quote = text_.empty() ? ' ' : text_.front();
    expect(quote == '\'' || quote == '"', concat("expected a text before ", io::in_quotes(text_.substr(0, 20))));
    const std::size_t end = text_.find(quote, 1);
    expect(end != text_.npos, "a text without an end");
    const std::string_view inside = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return inside;
  }

  bool truth() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return value;
      }
    expect(false, concat("expected True or False before ", io::in_quotes(text_.substr(0, 20))));
    return false;
  }

  Shape shape() {
    Shape sizes;
    symbol('(');
    while (!accept(')')) {
      skip_spaces();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      expect(error == std::errc() && size >= 0,
             concat("expected a size of 63 bits before ", io::in_quotes(text_.substr(0, 20))));
      expect(sizes.rank() < kMaxRank, concat("expected at most ", kMaxRank, " dimensions"));
      sizes.push_back(size);
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      if (!accept(',')) {
        symbol(')');
        break;
      }
    }
    return sizes;
  }

  FileType type(std::string_view descr) const {
    const auto* const found = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == descr; });
    std::string known;
    for (const auto& [name, type] : kTypes) known += concat(known.empty() ? "" : ", ", name);
    expect(found != kTypes.end(), concat("expected a descr of ", known, ", got ", io::in_quotes(descr)));
    return found->second;
  }

  const io::ByteReader& file_;
  std::string_view text_;
};

Header read_header(io::ByteReader& reader) {
  reader.expect(reader.left() >= 10, "expected at least 10 bytes, the file has ", reader.left());
  reader.expect(reader.take(kMagic.size()) == kMagic, "expected a file of NumPy's format, which begins with \\x93NUMPY");
  const auto version = reader.number<std::uint8_t>();
  reader.expect(version >= 1 && version <= 3, "expected version 1, 2 or 3 of the format, got ", static_cast<int>(version));
  static_cast<void>(reader.number<std::uint8_t>());
  const std::uint64_t length = version == 1 ? reader.number<std::uint16_t>() : reader.number<std::uint32_t>();
  const std::string_view text = reader.take(length);
  return HeaderReader(reader, text).read();
}

}  // namespace

Tensor load_npy(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(kLoad, path);
  io::ByteReader reader(kLoad, path, {file->data(), file->size()});
  const Header header = read_header(reader);
  const std::optional<std::int64_t> numel = io::checked_numel(header.shape);
  const std::size_t width = size_of(header.type);
  reader.expect(numel.has_value() && static_cast<std::uint64_t>(*numel) <= reader.left() / width &&
                    static_cast<std::uint64_t>(*numel) * width == reader.left(),
                "the shape ", header.shape, " does not go with ", reader.left(), " bytes of data of ", width, " bytes each");
  Shape stored = header.shape;
  std::vector<int> reversed;
  for (int d = 0; d < stored.rank(); ++d) {
    if (header.is_fortran) stored[d] = header.shape[header.shape.rank() - 1 - d];
    reversed.push_back(stored.rank() - 1 - d);
  }
  const Tensor tensor = io::file_tensor(file, file->data() + reader.offset(), header.type, stored);
  return header.is_fortran && stored.rank() > 1 ? tensor.permute(reversed).contiguous() : tensor;
}

std::string to_npy(const Tensor& tensor) {
  Tensor host = tensor.detach().cpu().contiguous();
  if (host.dtype() == DType::bf16) host = host.to(DType::f32);
  const char* const descr = host.dtype() == DType::f32   ? "<f4"
                            : host.dtype() == DType::f64 ? "<f8"
                            : host.dtype() == DType::f16 ? "<f2"
                                                         : "<i8";
  std::string header = concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", host.shape(), ", }");
  const std::size_t opening = kMagic.size() + 4;  // magic, version, length
  header.append((kAlignment - (opening + header.size() + 1) % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 255U), static_cast<char>(header.size() >> 8U)};
  bytes += header;
  bytes.append(static_cast<const char*>(host.raw()), static_cast<std::size_t>(host.numel()) * polyphase::size_of(host.dtype()));
  return bytes;
}

void save_npy(const std::string& path, const Tensor& tensor) {
  const std::string bytes = to_npy(tensor);
  AtomicFile file("save_npy", path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace polyphase
