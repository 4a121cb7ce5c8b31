#pragma once
// The networks that programs know by name.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "../networks/network.hpp"

namespace polyphase {

/// A published network.
struct NetworkEntry {
  std::string_view name;  ///< "hifigan"
  std::string_view what;  ///< a line about it
  /// From a published configuration (JSON). Throws FormatError naming the entry that is missing or does not fit.
  std::unique_ptr<Network> (*make)(const std::string& config);
};

/// Sorted by name.
[[nodiscard]] std::span<const NetworkEntry> network_entries();
/// The network of this name with random weights. Throws FormatError listing the names there are, and what `make` throws.
[[nodiscard]] std::unique_ptr<Network> make_network(std::string_view name, const std::string& config);

}  // namespace polyphase
