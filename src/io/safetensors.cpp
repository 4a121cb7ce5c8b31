#include "io/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "io/atomic_file.hpp"
#include "io/file_tensor.hpp"
#include "io/mapped_file.hpp"
#include "io/safetensors_header.hpp"

namespace polyphase {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian, and bytes are used as they stand");

constexpr const char* kLoadSafetensors = "load_safetensors";
constexpr const char* kSave = "save_safetensors";

[[noreturn]] void refuse(const std::string& path, const std::string& what, std::int64_t offset) {
  throw FormatError(concat(kLoadSafetensors, ": ", path, ": ", what, " (at byte ", offset, ")"), offset);
}

std::uint64_t read_header_length(const std::string& path, const MappedFile& file) {
  if (file.size() < io::kLengthBytes) refuse(path, concat("expected at least 8 bytes, the file has ", file.size()), 0);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > io::kMaxHeaderBytes) {
    refuse(path, concat("header of ", length, " bytes, the format allows ", io::kMaxHeaderBytes), 0);
  }
  if (length > file.size() - io::kLengthBytes) {
    refuse(path, concat("header of ", length, " bytes, the file has ", file.size() - io::kLengthBytes, " after its length"), 0);
  }
  return length;
}

// Wide elements first: with data that starts at a multiple of 8 and no gaps, every tensor is then aligned.
std::vector<std::size_t> data_order(const NamedTensors& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });
  return order;
}

void check_names(const std::string& path, const NamedTensors& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    const auto require_that = [&, &name = name](bool condition, const char* what) {
      require<FormatError>(condition, kSave, ": ", path, ": tensor ", io::in_quotes(name), " ", what);
    };
    require_that(name != "__metadata__", "has the name that the format reserves for metadata");
    require_that(names.insert(name).second, "appears twice");
    require_that(tensor.defined(), "is undefined");
  }
}

}  // namespace

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

const Tensor& SafetensorsFile::at(std::string_view name) const {
  const Tensor* tensor = find(name);
  require<Error>(tensor != nullptr, "safetensors: no tensor ", io::in_quotes(name), " among the ", tensors.size(),
                 " of the file");
  return *tensor;
}

SafetensorsFile load_safetensors(const std::string& path, Device device) {
  const auto file = std::make_shared<MappedFile>(kLoadSafetensors, path);
  const std::uint64_t length = read_header_length(path, *file);
  const std::uint64_t data_start = io::kLengthBytes + length;
  io::SafetensorsHeader header = io::parse_header(path, {file->data() + io::kLengthBytes, length}, file->size() - data_start);
  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.entries.size());
  for (io::SafetensorsEntry& entry : header.entries) {
    Tensor tensor = io::file_tensor(file, file->data() + data_start + entry.begin, entry.dtype, entry.shape);
    result.tensors.emplace_back(std::move(entry.name), device.is_cpu() ? std::move(tensor) : tensor.to(device));
  }
  return result;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  check_names(path, tensors);
  io::SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [name, tensor] : tensors) header.entries.push_back({name, tensor.dtype(), tensor.shape(), 0, 0});
  const std::vector<std::size_t> order = data_order(tensors);
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    io::SafetensorsEntry& entry = header.entries[i];
    entry.begin = end;
    end += static_cast<std::uint64_t>(tensors[i].second.numel()) * size_of(entry.dtype);
    entry.end = end;
  }
  const std::string text = io::format_header(path, header);
  const std::uint64_t length = text.size();

  AtomicFile file(kSave, path);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const std::size_t i : order) {
    const Tensor host = tensors[i].second.detach().cpu().contiguous();
    file.write(host.raw(), static_cast<std::size_t>(host.numel()) * size_of(host.dtype()));
  }
  file.commit();
}

}  // namespace polyphase
