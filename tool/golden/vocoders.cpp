// BigVGAN, Vocos and the mel front ends on their golden files.
#include "golden/networks.hpp"
#include "networks/bigvgan.hpp"

namespace polyphase::golden {

NamedTensors bigvgan_outputs(const NetworkFile& file) {
  BigVgan net(BigVganConfig::parse(file.config()));
  file.prepare(net);
  return {{"audio", net(file.input("mel"))}};
}

}  // namespace polyphase::golden
