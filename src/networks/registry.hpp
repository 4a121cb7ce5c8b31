#pragma once
// The networks that programs know by name.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "../networks/network.hpp"

namespace polyphase {

/// What a network takes of some audio.
struct FrontEndOutput {
  Tensor input;     ///< mel (N, rows, frames) or codes (N, codebooks, frames)
  Tensor scales{};  ///< for set_scales(), if segments have scales
};
/// Turns audio (N, channels, samples), f32, into what a network takes.
using FrontEnd = std::function<FrontEndOutput(const Tensor& audio)>;

/// A published network.
struct NetworkEntry {
  std::string_view name;  ///< "hifigan"
  std::string_view what;  ///< a line about it
  /// From a published configuration (JSON). Throws FormatError naming the entry that is missing or does not fit.
  std::unique_ptr<Network> (*make)(const std::string& config);
  /// Makes the network's front end, f32 on `device`: the mel it was trained with, or its encoder, which takes its tensors from
  /// `weights` (names of the original code). Null where there is none. Throws as `make` and load_published() do.
  FrontEnd (*make_front_end)(const std::string& config, const NamedTensors& weights, Device device) = nullptr;
};

/// Sorted by name.
[[nodiscard]] std::span<const NetworkEntry> network_entries();
/// The network of this name with random weights. Throws FormatError listing the names there are, and what `make` throws.
[[nodiscard]] std::unique_ptr<Network> make_network(std::string_view name, const std::string& config);

}  // namespace polyphase
