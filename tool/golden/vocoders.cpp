// BigVGAN, Vocos and the mel front ends on their golden files.
#include "golden/compare.hpp"
#include "golden/networks.hpp"
#include "networks/bigvgan.hpp"
#include "networks/mel.hpp"
#include "networks/vocos.hpp"

namespace polyphase::golden {

NamedTensors bigvgan_outputs(const NetworkFile& file) {
  BigVgan net(BigVganConfig::parse(file.config()));
  file.prepare(net);
  return {{"audio", net(file.input("mel"))}};
}

NamedTensors vocos_outputs(const NetworkFile& file) {
  Vocos net(VocosConfig::parse(file.config()));
  file.prepare(net);
  if (file.has_input("bandwidth_id")) net.set_bandwidth_id(file.input("bandwidth_id").item<std::int64_t>());
  return {{"audio", net(file.input("features")).squeeze(1)}};
}

NamedTensors mel_outputs(const NetworkFile& file) {
  MelSpectrogram mel = hifigan_mel(file.config());
  const Tensor* filters = file.file.content.find("reference/mel_basis");
  if (filters != nullptr && as_doubles(*filters) != as_doubles(mel_filters(mel.options().mel)))
    file.file.fail("expected the mel filters of reference/mel_basis bit for bit, got others");
  mel.to(file.dtype);
  mel.to(file.device);
  return {{"log_mel", mel(file.input("wav"))}};
}

}  // namespace polyphase::golden
