#include "io/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "io/json_reason.hpp"
#include "io/mapped_file.hpp"
#include "io/npy.hpp"
#include "io/onnx.hpp"
#include "io/safetensors_header.hpp"
#include "io/torch_file.hpp"

namespace polyphase {
namespace {

using Json = nlohmann::json;

constexpr const char* kLoadWeights = "load_weights";
constexpr std::size_t kMostIndexBytes = std::size_t{1} << 26;

bool begins_safetensors(std::string_view bytes) {
  if (bytes.size() <= io::kLengthBytes || bytes[io::kLengthBytes] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length <= io::kMaxHeaderBytes;
}

WeightsFormat format_of(const std::string& path) {
  const MappedFile file(kLoadWeights, path);
  const std::string_view bytes(file.data(), file.size());
  require<FormatError>(!bytes.empty(), kLoadWeights, ": ", path, ": the file is empty");
  if (begins_safetensors(bytes)) return WeightsFormat::safetensors;
  if (bytes.starts_with("\x93NUMPY")) return WeightsFormat::npy;
  if (bytes.starts_with("PK\x03\x04") || bytes.starts_with('\x80')) return WeightsFormat::torch;
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != bytes.npos && bytes[first] == '{') return WeightsFormat::safetensors_index;
  if (bytes.front() == '\x08') return WeightsFormat::onnx;  // the field ir_version, which is written first
  throw FormatError(
      concat(kLoadWeights, ": ", path,
             ": expected safetensors or its index, a file of torch.save, ONNX or .npy, got a file that begins with ",
             io::in_quotes(bytes.substr(0, 16))));
}

/// The index's JSON: {"weight_map": {NAME: SHARD}}.
Json read_index(const std::string& path) {
  const MappedFile file(kLoadWeights, path);
  require<FormatError>(file.size() <= kMostIndexBytes, kLoadWeights, ": ", path, ": expected an index of at most ",
                       kMostIndexBytes, " bytes, got ", file.size());
  // No container of an index is deeper.
  const auto limit = [](int depth, Json::parse_event_t, Json&) { return depth <= 4; };
  try {
    Json index = Json::parse(std::string_view(file.data(), file.size()), limit);
    const auto map = index.find("weight_map");
    require<FormatError>(map != index.end() && map->is_object(), kLoadWeights, ": ", path,
                         ": expected an index of safetensors with a weight_map");
    return *map;
  } catch (const Json::exception& error) {
    throw FormatError(concat(kLoadWeights, ": ", path, ": ", json_reason(error)));
  }
}

template <class Number>
bool all_finite(const Tensor& tensor) {
  const Number* const values = tensor.data<Number>();
  // x * 0 is 0 where x is finite, and NaN elsewhere.
  Number sum = 0;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) sum += values[i] * Number{0};
  return sum == 0;
}

bool is_finite(const Tensor& tensor) {
  if (!tensor.defined() || !is_floating_point(tensor.dtype())) return true;
  const DType wide = tensor.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor host = tensor.detach().cpu().to(wide).contiguous();
  return wide == DType::f64 ? all_finite<double>(host) : all_finite<float>(host);
}

}  // namespace

SafetensorsFile load_safetensors_index(const std::string& path) {
  const Json map = read_index(path);
  SafetensorsFile result;
  std::map<std::string, std::unordered_map<std::string, Tensor>> shards;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const auto& [name, shard] : map.items()) {
    require<FormatError>(shard.is_string(), kLoadWeights, ": ", path, ": expected the file name of the tensor ",
                         io::in_quotes(name));
    const auto file = shard.get<std::string>();
    require<FormatError>(!file.empty() && file.find('/') == file.npos && file != "..", kLoadWeights, ": ", path,
                         ": expected a file next to the index, got ", io::in_quotes(file));
    auto found = shards.find(file);
    if (found == shards.end()) {
      SafetensorsFile content = load_safetensors((folder / file).string());
      found =
          shards.emplace(file, std::unordered_map<std::string, Tensor>(content.tensors.begin(), content.tensors.end())).first;
    }
    const auto tensor = found->second.find(name);
    require<FormatError>(tensor != found->second.end(), kLoadWeights, ": ", path, ": the tensor ", io::in_quotes(name),
                         " is not in ", io::in_quotes(file));
    result.tensors.emplace_back(name, tensor->second);
  }
  return result;
}

WeightsFile load_weights(const std::string& path) {
  WeightsFile result{.format = format_of(path)};
  switch (result.format) {
    case WeightsFormat::safetensors:
    case WeightsFormat::safetensors_index: {
      SafetensorsFile file =
          result.format == WeightsFormat::safetensors ? load_safetensors(path) : load_safetensors_index(path);
      result.tensors = std::move(file.tensors);
      result.metadata = std::move(file.metadata);
      break;
    }
    case WeightsFormat::torch: {
      TorchFile file = load_torch(path);
      result.tensors = std::move(file.tensors);
      result.metadata.emplace("plain", std::move(file.plain));
      break;
    }
    case WeightsFormat::onnx:
      result.tensors = load_onnx(path);
      break;
    case WeightsFormat::npy:
      result.tensors.emplace_back("", load_npy(path));
      break;
  }
  return result;
}

void require_finite(const std::string& operation, const NamedTensors& tensors) {
  std::string names;
  for (const auto& [name, tensor] : tensors)
    if (!is_finite(tensor)) names += concat(names.empty() ? "" : ", ", name);
  require<FormatError>(names.empty(), operation, ": expected finite numbers, got others in ", names);
}

}  // namespace polyphase
