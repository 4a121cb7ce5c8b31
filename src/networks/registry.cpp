#include "networks/registry.hpp"

#include <algorithm>

#include "networks/hifigan.hpp"
#include "networks/mimi.hpp"
#include "networks/qwen3_12hz.hpp"

namespace polyphase {
namespace {

template <class N, class Config>
std::unique_ptr<Network> make(const std::string& config) {
  return std::make_unique<N>(Config::parse(config));
}

constexpr NetworkEntry kEntries[] = {
    {"hifigan", "HiFi-GAN V1 to V3 and the decoder of VITS and Piper: mel or latent to speech", make<HifiGan, HifiGanConfig>},
    {"mimi", "Mimi's decoder: codes at 12.5 Hz to speech", make<Mimi, MimiConfig>},
    {"qwen3_12hz", "The decoder of Qwen3-TTS' 12 Hz tokenizer: codes to speech", make<Qwen3Tts12Hz, Qwen3Tts12HzConfig>},
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
