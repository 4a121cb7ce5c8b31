#pragma once
// The tensors of a file of any format that published networks come in.

#include <string>

#include "../io/safetensors.hpp"
#include "../layers/module.hpp"

namespace polyphase {

enum class WeightsFormat : std::uint8_t { safetensors, safetensors_index, torch, onnx, npy };

/// What a file of weights held.
struct WeightsFile {
  WeightsFormat format = WeightsFormat::safetensors;
  NamedTensors tensors{};  ///< names as the file has them, with dots between nested dicts; "" for a lone tensor
  Metadata metadata{};     ///< of safetensors; of torch.save's files the key "plain", load_torch()'s JSON
};

/// Reads safetensors, the JSON index of sharded safetensors ("model.safetensors.index.json"), torch.save's files in both
/// formats, the initializers of ONNX, and .npy. The file's first bytes decide the format, not its name. Throws
/// FormatError naming the file and what is wrong with it.
[[nodiscard]] WeightsFile load_weights(const std::string& path);

/// Tensors of the shards that an index names, in the index's order. Shards are in the folder of the index. Throws FormatError
/// naming the shard or the tensor that is missing.
[[nodiscard]] SafetensorsFile load_safetensors_index(const std::string& path);

/// Throws FormatError "OPERATION: NAME, ... have numbers that are not finite" where floating-point tensors do.
void require_finite(const std::string& operation, const NamedTensors& tensors);

}  // namespace polyphase
