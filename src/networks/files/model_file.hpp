#pragma once
// A published network from its file.

#include <memory>
#include <string>

#include "../../networks/network.hpp"
#include "../../networks/registry.hpp"

namespace polyphase {

/// What a file does not say itself, or says otherwise.
struct ModelOptions {
  std::string network{};  ///< a name of network_entries(); empty: the names of the tensors decide
  std::string config{};   ///< JSON; empty: from the file's metadata, or config.json in the same folder
};

/// A network and what it was made from.
struct Model {
  std::string network;  ///< a name of network_entries()
  std::string config;   ///< JSON, in the original code's form
  std::unique_ptr<Network> net;
};

/// Reads weights in any format of load_weights(), finds out which network they are of, builds it and loads them, f32 on the
/// CPU and in eval mode. Other parts of the checkpoint (discriminators, optimizers, an encoder in front) are passed over; names
/// of transformers and diffusers are known for DAC, EnCodec, Mimi, Oobleck and SpeechT5's HiFi-GAN.
///
///     pp::Model model = pp::load_model("g_02500000");   // with config.json in the same folder
///     const pp::Tensor audio = (*model.net)(mel);
///
/// Throws FormatError naming the file: not readable, of no known network, without a configuration, with numbers that are not
/// finite; and Error naming every missing, unexpected and misshapen tensor.
[[nodiscard]] Model load_model(const std::string& path, const ModelOptions& options = {});

/// What turns audio into the input of a model that was read from `path`, on `device`: registry.hpp. Throws NotImplemented where
/// there is no such thing for the network, and as load_model() does.
[[nodiscard]] FrontEnd load_front_end(const Model& model, const std::string& path, Device device = default_device());

/// Writes a network with its name and configuration as safetensors, which load_model() reads without more. Throws FormatError.
void save_model(const std::string& path, const Model& model);

/// Reads a model as load_model() does and writes all tensors of its part of the checkpoint, those of an encoder too, under the
/// original's names and with weight norm folded, with its name and configuration as safetensors. Returns the model. Throws as
/// load_model() and save_safetensors() do.
Model convert_model(const std::string& from, const std::string& to, const ModelOptions& options = {});

}  // namespace polyphase
