#include "networks/registry.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "networks/bigvgan.hpp"
#include "networks/dac.hpp"
#include "networks/encodec.hpp"
#include "networks/hifigan.hpp"
#include "networks/mel.hpp"
#include "networks/mimi.hpp"
#include "networks/oobleck.hpp"
#include "networks/qwen3_12hz.hpp"
#include "networks/snac.hpp"
#include "networks/vocos.hpp"
#include "ops/length.hpp"

namespace polyphase {
namespace {

template <class N, class Config>
std::unique_ptr<Network> make(const std::string& config) {
  return std::make_unique<N>(Config::parse(config));
}

template <MelSpectrogram (*kMel)(const std::string&)>
FrontEnd mel_of(const std::string& config, const NamedTensors&, Device device) {
  const auto mel = std::make_shared<MelSpectrogram>(kMel(config));
  mel->to(device);
  return [mel](const Tensor& audio) { return FrontEndOutput{(*mel)(audio.select(1, 0))}; };
}

/// A codec's encoder with its weights, in evaluation.
template <class E, class Config>
std::shared_ptr<E> make_encoder(const Config& config, const NamedTensors& weights, Device device) {
  auto encoder = std::make_shared<E>(config);
  encoder->load_published(weights);
  encoder->to(device);
  encoder->eval();
  return encoder;
}

FrontEnd dac_codes(const std::string& config, const NamedTensors& weights, Device device) {
  return [encoder = make_encoder<DacEncoder>(DacConfig::parse(config), weights, device)](const Tensor& audio) {
    const NoGradGuard no_grad;
    return FrontEndOutput{encoder->forward(audio)};
  };
}

/// The codes of all segments, one after another. The decoder cuts them every `frames`, so only the last segment may be shorter.
/// A shorter one reaches the end of the audio: the next one lies inside it and is dropped.
FrontEndOutput joined(const std::vector<EncodecSegment>& segments, std::int64_t frames) {
  std::vector<Tensor> codes, scales;
  for (const EncodecSegment& segment : segments) {
    codes.push_back(segment.codes);
    if (segment.scale.defined()) scales.push_back(segment.scale);
    if (segment.codes.size(2) < frames) break;
  }
  return {.input = cat(codes, 2), .scales = scales.empty() ? Tensor() : cat(scales, 1)};
}

FrontEnd encodec_codes(const std::string& config, const NamedTensors& weights, Device device) {
  const EncodecConfig parsed = EncodecConfig::parse(config);
  return [encoder = make_encoder<EncodecEncoder>(parsed, weights, device)](const Tensor& audio) {
    const NoGradGuard no_grad;
    return joined(encoder->encode(audio), encoder->config().segment_frames());
  };
}

constexpr NetworkEntry kEntries[] = {
    {"bigvgan", "BigVGAN v1 and v2: mel to audio", make<BigVgan, BigVganConfig>, mel_of<hifigan_mel>},
    {"dac", "Descript Audio Codec, 16, 24 and 44 kHz: codes to audio", make<DacDecoder, DacConfig>, dac_codes},
    {"encodec", "EnCodec, 24 and 48 kHz: codes to audio", make<Encodec, EncodecConfig>, encodec_codes},
    {"hifigan", "HiFi-GAN V1 to V3 and the decoder of VITS and Piper: mel or latent to speech", make<HifiGan, HifiGanConfig>,
     mel_of<hifigan_mel>},
    {"mimi", "Mimi's decoder: codes at 12.5 Hz to speech", make<Mimi, MimiConfig>},
    {"oobleck", "the decoder of Stable Audio's autoencoder: latent to stereo audio", make<OobleckDecoder, OobleckConfig>},
    {"qwen3_12hz", "The decoder of Qwen3-TTS' 12 Hz tokenizer: codes to speech", make<Qwen3Tts12Hz, Qwen3Tts12HzConfig>},
    {"snac", "SNAC, 24, 32 and 44 kHz, codebooks of different rates: codes to audio", make<SnacDecoder, SnacConfig>},
    {"vocos", "Vocos: mel or EnCodec's latent to audio by an inverse Fourier transform", make<Vocos, VocosConfig>,
     mel_of<vocos_mel>},
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
