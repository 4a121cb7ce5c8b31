#pragma once
// Files of torch.save and ONNX made by hand, byte for byte as PyTorch 1.13 and its exporter write them.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace polyphase::testing {

template <class Number>
std::string bytes_of(Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class Number>
std::string bytes_of(const std::vector<Number>& values) {
  std::string bytes;
  for (const Number value : values) bytes += bytes_of(value);
  return bytes;
}

/// Pieces of a pickle.
namespace pickle {
inline std::string text(const std::string& value) { return "X" + bytes_of(static_cast<std::uint32_t>(value.size())) + value; }
inline std::string number(std::int32_t value) { return "J" + bytes_of(value); }
inline std::string tuple(const std::string& items) { return "(" + items + "t"; }
inline std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
inline std::string call(const std::string& function, const std::string& arguments) { return function + tuple(arguments) + "R"; }
inline std::string ordered_dict(const std::string& items = "") {
  return global("collections", "OrderedDict") + ")R" + (items.empty() ? "" : "(" + items + "u");
}
inline std::string dict(const std::string& items) { return "}(" + items + "u"; }
inline std::string sizes(const std::vector<int>& values) {
  std::string items;
  for (const int value : values) items += number(value);
  return tuple(items);
}
/// _rebuild_tensor_v2 over the storage `key` with `numel` elements.
inline std::string tensor(const std::string& key, int numel, const std::vector<int>& shape, const std::vector<int>& strides,
                          int offset = 0, const std::string& storage = "FloatStorage") {
  const std::string id = tuple(text("storage") + global("torch", storage) + text(key) + text("cpu") + number(numel));
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              id + "Q" + number(offset) + sizes(shape) + sizes(strides) + "\x89" + ordered_dict());
}
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }
}  // namespace pickle

/// A ZIP archive of stored members, as PyTorch's.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string archive, directory;
  const auto u16 = [](std::size_t value) { return bytes_of(static_cast<std::uint16_t>(value)); };
  const auto u32 = [](std::size_t value) { return bytes_of(static_cast<std::uint32_t>(value)); };
  for (const auto& [name, data] : members) {
    const std::string sizes = u32(0) + u32(data.size()) + u32(data.size());  // checksum, packed, unpacked
    const std::string common = u16(0) + u16(0) + u16(0) + u16(0) + sizes + u16(name.size()) + u16(0);
    directory += u32(0x02014b50) + u16(20) + u16(20) + common + u16(0) + u16(0) + u16(0) + u32(0) + u32(archive.size()) + name;
    archive += u32(0x04034b50) + u16(20) + common + name + data;
  }
  const std::size_t begin = archive.size();
  return archive + directory + u32(0x06054b50) + u16(0) + u16(0) + u16(members.size()) + u16(members.size()) +
         u32(directory.size()) + u32(begin) + u16(0);
}

/// torch.save(value) with these storages, in the format since PyTorch 1.6.
inline std::string torch_archive(const std::string& value, const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<std::pair<std::string, std::string>> members{{"archive/data.pkl", pickle::whole(value)}};
  for (const auto& [key, data] : storages) members.emplace_back("archive/data/" + key, data);
  members.emplace_back("archive/version", "3\n");
  return zip_of(members);
}

/// torch.save(value) in the older format, with storages of f32.
inline std::string torch_before_archive(const std::string& value,
                                        const std::vector<std::pair<std::string, std::vector<float>>>& storages) {
  std::string keys, data;
  for (const auto& [key, values] : storages) {
    keys += pickle::text(key);
    data += bytes_of(static_cast<std::int64_t>(values.size())) + bytes_of(values);
  }
  return std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15) + "\x80\x02M\xe9\x03." +
         pickle::whole(pickle::dict(pickle::text("little_endian") + "\x88")) + pickle::whole(value) +
         pickle::whole("](" + keys + "e") + data;
}

/// Pieces of a protocol buffer.
namespace protobuf {
inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(value | 0x80U);
  return bytes + static_cast<char>(value);
}
inline std::string number(unsigned field, std::uint64_t value) { return varint(field << 3U) + varint(value); }
inline std::string bytes(unsigned field, const std::string& value) {
  return varint(field << 3U | 2U) + varint(value.size()) + value;
}
/// A TensorProto with raw data.
inline std::string tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint64_t type,
                          const std::string& raw) {
  std::string value;
  for (const std::uint64_t dim : dims) value += number(1, dim);
  return value + number(2, type) + bytes(8, name) + bytes(9, raw);
}
/// A ModelProto with these initializers.
inline std::string model(const std::vector<std::string>& tensors) {
  std::string graph = bytes(2, "graph");
  for (const std::string& one : tensors) graph += bytes(5, one);
  return number(1, 8) + bytes(2, "pytorch") + bytes(7, graph);
}
}  // namespace protobuf

}  // namespace polyphase::testing
