#include "networks/registry.hpp"

#include <algorithm>

#include "networks/dac.hpp"
#include "networks/hifigan.hpp"
#include "networks/oobleck.hpp"
#include "networks/snac.hpp"

namespace polyphase {
namespace {

template <class N, class Config>
std::unique_ptr<Network> make(const std::string& config) {
  return std::make_unique<N>(Config::parse(config));
}

constexpr NetworkEntry kEntries[] = {
    {"dac", "Descript Audio Codec, 16, 24 and 44 kHz: codes to audio", make<DacDecoder, DacConfig>},
    {"hifigan", "HiFi-GAN V1 to V3 and the decoder of VITS and Piper: mel or latent to speech", make<HifiGan, HifiGanConfig>},
    {"oobleck", "the decoder of Stable Audio's autoencoder: latent to stereo audio", make<OobleckDecoder, OobleckConfig>},
    {"snac", "SNAC, 24, 32 and 44 kHz, codebooks of different rates: codes to audio", make<SnacDecoder, SnacConfig>},
};

}  // namespace

std::span<const NetworkEntry> network_entries() { return kEntries; }

std::unique_ptr<Network> make_network(std::string_view name, const std::string& config) {
  const auto found =
      std::find_if(std::begin(kEntries), std::end(kEntries), [&](const NetworkEntry& e) { return e.name == name; });
  std::string known;
  for (const NetworkEntry& entry : kEntries) known += concat(known.empty() ? "" : ", ", entry.name);
  require<FormatError>(found != std::end(kEntries), "network: expected one of ", known, ", got ", name);
  return found->make(config);
}

}  // namespace polyphase
