// The outputs of DAC and Oobleck, under the names that the files have.
#include "golden/networks.hpp"
#include "networks/dac.hpp"
#include "networks/oobleck.hpp"

namespace polyphase::golden {

NamedTensors dac_decoder_outputs(const NetworkFile& file) {
  DacDecoder net(DacConfig::parse(file.config()));
  file.prepare(net);
  const Tensor codes = file.input("codes");
  return {{"latent", net.latent(codes)}, {"audio", net(codes)}};
}

NamedTensors dac_encoder_outputs(const NetworkFile& file) {
  DacEncoder net(DacConfig::parse(file.config()));
  file.prepare(net);
  const DacEncoder::Encoded result = net.encode(file.input("audio"));
  return {{"encoded", result.encoded}, {"codes", result.codes}, {"latents", result.latents}, {"z", result.quantized}};
}

NamedTensors oobleck_outputs(const NetworkFile& file) {
  OobleckDecoder net(OobleckConfig::parse(file.config()));
  file.prepare(net);
  return {{"audio", net(file.input("latent"))}};
}

}  // namespace polyphase::golden
