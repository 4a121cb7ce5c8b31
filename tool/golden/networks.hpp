#pragma once
// Golden files of published networks: metadata network and config, tensors weights/KEY, input/NAME, expected output/NAME.

#include <string>
#include <string_view>

#include "golden/forms.hpp"
#include "networks/network.hpp"

namespace polyphase::golden {

/// A golden file and the options for it.
struct NetworkFile {
  const File& file;
  NamedTensors weights;  ///< names of the original code
  DType dtype = DType::f64;
  Device device{};

  [[nodiscard]] const std::string& config() const { return file.metadata("config"); }
  [[nodiscard]] bool has_input(const std::string& name) const { return file.content.find("input/" + name) != nullptr; }
  /// On the device; in the dtype, unless it holds codes. Throws FormatError if the file has none.
  [[nodiscard]] Tensor input(const std::string& name) const;
  /// Loads the weights and moves the network to the dtype and the device.
  void prepare(Network& network) const;
};

/// How the outputs of one network are computed.
struct NetworkCheck {
  std::string_view network;  ///< as the files' metadata has it
  double f32;                ///< tolerance in f32: max |difference| / peak of an output
  /// The network's outputs, with the names that the files have after "output/".
  NamedTensors (*outputs)(const NetworkFile& file);
  double published_f32 = 0;  ///< the same with published weights, which a file names but does not contain; 0: as f32
};

NamedTensors dac_decoder_outputs(const NetworkFile& file);
NamedTensors dac_encoder_outputs(const NetworkFile& file);
NamedTensors oobleck_outputs(const NetworkFile& file);
NamedTensors snac_outputs(const NetworkFile& file);
NamedTensors bigvgan_outputs(const NetworkFile& file);
NamedTensors encodec_outputs(const NetworkFile& file);
NamedTensors encodec_encoder_outputs(const NetworkFile& file);
NamedTensors hifigan_outputs(const NetworkFile& file);
NamedTensors vocos_outputs(const NetworkFile& file);
NamedTensors mel_outputs(const NetworkFile& file);
NamedTensors mimi_outputs(const NetworkFile& file);
NamedTensors qwen3_12hz_outputs(const NetworkFile& file);

}  // namespace polyphase::golden
