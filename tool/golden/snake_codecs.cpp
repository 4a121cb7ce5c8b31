// The outputs of DAC, Oobleck and SNAC, with the names of the files.
#include "golden/networks.hpp"
#include "networks/dac.hpp"
#include "networks/oobleck.hpp"
#include "networks/snac.hpp"

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

NamedTensors snac_outputs(const NetworkFile& file) {
  const SnacConfig config = SnacConfig::parse(file.config());
  SnacDecoder net(config);
  file.prepare(net);
  std::vector<Tensor> codes, noise;
  for (std::size_t i = 0; i < config.vq_strides.size(); ++i) codes.push_back(file.input(concat("codes.", i)));
  for (std::size_t i = 0; file.has_input(concat("noise.", i)); ++i) noise.push_back(file.input(concat("noise.", i)));
  const Tensor packed = net.pack(codes);
  NamedTensors outputs{{"latent", net.latent(packed)}};
  net.set_noise(noise);
  outputs.emplace_back("audio", net(packed));
  net.without_noise();
  outputs.emplace_back("audio_noise_zero", net(packed));
  return outputs;
}

}  // namespace polyphase::golden
