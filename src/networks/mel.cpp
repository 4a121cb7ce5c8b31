#include "networks/mel.hpp"

#include "networks/config.hpp"

namespace polyphase {
namespace {

// The layer, its refusals in the words of a configuration's.
MelSpectrogram made(const NetworkConfig& json, const MelSpectrogram::Options& options) {
  try {
    return MelSpectrogram(options);
  } catch (const ShapeError& error) {
    json.expect(false, error.what());
    throw;
  }
}

}  // namespace

MelSpectrogram hifigan_mel(const std::string& config) {
  const NetworkConfig json("mel", config);
  return made(json, {.mel = {.sample_rate = json.count("sampling_rate"),
                             .n_fft = json.count("n_fft"),
                             .n_mels = json.count("num_mels"),
                             .f_min = json.number("fmin", 0),
                             .f_max = json.number("fmax", 0)},
                     .hop_length = json.count("hop_size"),
                     .win_length = json.count("win_size")});
}

MelSpectrogram vocos_mel(const std::string& config) {
  const NetworkConfig json = NetworkConfig("mel", config).object("feature_extractor");
  const std::string kind = json.text("class_path", "MelSpectrogramFeatures");
  json.expect(kind.ends_with("MelSpectrogramFeatures"), "expected feature_extractor.class_path of MelSpectrogramFeatures, got ",
              kind);
  const NetworkConfig arguments = json.has("init_args") ? json.object("init_args") : NetworkConfig("mel", "{}");
  const std::string padding = arguments.text("padding", "center");
  json.expect(padding == "center" || padding == "same", "expected padding center or same, got ", padding);
  return made(json, {.mel = {.sample_rate = arguments.count_or("sample_rate", 24000),
                             .n_fft = arguments.count_or("n_fft", 1024),
                             .n_mels = arguments.count_or("n_mels", 100),
                             .scale = MelScale::htk,
                             .is_normalized = false},
                     .hop_length = arguments.count_or("hop_length", 256),
                     .padding = padding == "center" ? MelSpectrogram::Padding::center : MelSpectrogram::Padding::same,
                     .power_floor = 0,
                     .clip = 1e-7});
}

}  // namespace polyphase
