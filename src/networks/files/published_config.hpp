#pragma once
// The configuration of a published checkpoint. Internal.

#include <string>

#include "io/weights.hpp"

namespace polyphase {

/// The configuration in the original code's form, as make_network() reads it, of the weights at `path`: `given` unless that is
/// empty, else what the file itself says (safetensors' metadata, DAC's own entry), else config.json in its folder, else what is
/// known of the network (Piper's voices, EnCodec's two models). transformers' and diffusers' configurations are changed to the
/// original's form. Throws FormatError naming the file where there is none, or where the JSON cannot be read.
[[nodiscard]] std::string published_config(const std::string& network, const std::string& path, const WeightsFile& weights,
                                           const std::string& given);

}  // namespace polyphase
