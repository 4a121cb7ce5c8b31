// EnCodec's decoder and encoder on their golden files.
#include "networks/encodec.hpp"

#include "golden/networks.hpp"

namespace polyphase::golden {

NamedTensors encodec_outputs(const NetworkFile& file) {
  Encodec net(EncodecConfig::parse(file.config()));
  file.prepare(net);
  NamedTensors outputs;
  std::vector<EncodecSegment> segments;
  for (int i = 0; file.has_input(concat("codes.", i)); ++i) {
    EncodecSegment segment{.codes = file.input(concat("codes.", i))};
    if (file.has_input(concat("scale.", i))) segment.scale = file.input(concat("scale.", i));
    outputs.emplace_back(concat("latent.", i), net.latent(segment.codes));
    segments.push_back(std::move(segment));
  }
  outputs.emplace_back("audio", net.decode(segments));
  return outputs;
}

NamedTensors encodec_encoder_outputs(const NetworkFile& file) {
  EncodecEncoder net(EncodecConfig::parse(file.config()));
  file.prepare(net);
  const Tensor audio = file.input("audio");
  const std::vector<EncodecSegment> segments = net.encode(audio);
  NamedTensors outputs{{"encoded", net.latent(audio)}};
  if (segments.size() == 1) outputs.emplace_back("codes", segments.front().codes);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    outputs.emplace_back(concat("codes.", i), segments[i].codes);
    if (segments[i].scale.defined()) outputs.emplace_back(concat("scale.", i), segments[i].scale);
  }
  return outputs;
}

}  // namespace polyphase::golden
