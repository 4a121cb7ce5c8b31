#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "evaluation.hpp"
#include "io/atomic_file.hpp"
#include "plots.hpp"
#include "shared.hpp"
#include "trainer.hpp"
#include "training/split.hpp"
#include "upsampler.hpp"

namespace superres {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kPictureSeconds = 5;

void warn_of_clip(const std::string& text) { std::fprintf(stderr, "superres: warning: %s\n", text.c_str()); }

// JSON has no infinity; nlohmann writes null instead, here for the SNR of a perfect output.
Json to_json(const Scores& scores) { return {{"snr_db", scores.snr}, {"si_sdr_db", scores.si_sdr}, {"lsd", scores.lsd}}; }

Json to_json(const ClipScores& scores) {
  return {{"clip", scores.name},
          {"seconds", scores.seconds},
          {"linear", to_json(scores.linear)},
          {"sinc", to_json(scores.sinc)},
          {"network", to_json(scores.network)}};
}

void write_json(const std::string& path, const ModelOptions& model, const std::vector<ClipScores>& scores) {
  Json clips = Json::array();
  for (const ClipScores& one : scores) clips.push_back(to_json(one));
  const ClipScores mean = mean_of(scores);
  const Json all{{"rate", model.rate},
                 {"factor", model.factor},
                 {"causal", model.causal},
                 {"clips", clips},
                 {"mean", to_json(mean)},
                 {"lsd_below_sinc", lsd_gain(mean)},
                 {"snr_above_sinc_db", mean.network.snr - mean.sinc.snr}};
  const std::string text = all.dump(2) + "\n";
  polyphase::AtomicFile file("eval", path);
  file.write(text.data(), text.size());
  file.commit();
}

ClipSet open_heldout(const EvalCommand& command, const ModelOptions& model) {
  const std::vector<std::string> paths = command.all_files
                                             ? find_audio(command.data, warn_of_clip)
                                             : split_folder(command.data, command.heldout_fraction, warn_of_clip).heldout;
  pp::require<pp::Error>(!paths.empty(), command.data, ": there is no sound file in it");
  return open_clips(paths, {.rate = model.rate, .factor = model.factor, .shortest = kLsdWindow, .silence = false},
                    warn_of_clip);
}

std::size_t find_clip(const ClipSet& clips, const std::string& name) {
  if (name.empty()) return 0;
  for (std::size_t i = 0; i < clips.clips.size(); ++i) {
    if (clips.clips[i].name() == name) return i;
  }
  throw pp::Error(pp::concat("eval: there is no clip '", name, "' among the ", clips.clips.size(), " scored; the first is '",
                             clips.clips[0].name(), "'"));
}

// One clip upsampled by every method, as sound and as the panels of a picture.
void write_sound_and_panels(const std::string& out, UpsamplingNetwork& network, const Clip& clip, const ClipScores& scores) {
  const ModelOptions& model = network.options();
  const std::vector<float> original = clip.high(0, clip.length());
  const std::vector<float> low = clip.low(0, clip.length() / model.factor);
  const auto title = [&](const char* what, const Scores& one) {
    return std::string(what) + " (SNR " + fixed(one.snr, 1) + " dB, log-spectral distance " + fixed(one.lsd, 2) + ")";
  };
  std::vector<SpectrogramPanel> panels{
      {"low", "input, " + fixed(model.low_rate() / 1000.0, 1) + " kHz", low, model.low_rate()},
      {"sinc", title("windowed sinc", scores.sinc), interpolate_sinc(low, model.factor), model.rate},
      {"network", title("network", scores.network), upsample(network, low), model.rate},
      {"original", "original, " + fixed(model.rate / 1000.0, 1) + " kHz", original, model.rate}};
  for (SpectrogramPanel& panel : panels) {
    write_wav(out + "/" + clip.name() + "." + panel.name + ".wav", {panel.rate, {panel.signal}});
    const auto most = static_cast<std::size_t>(kPictureSeconds * panel.rate);
    if (panel.signal.size() > most) panel.signal.resize(most);
  }
  write_spectrograms(out, panels);
}

// Draws the log of the run whose folder contains the network, if there is one.
bool write_log_picture(const std::string& model_path, const std::string& out) {
  const RunFolder run{fs::path(model_path).parent_path().string()};
  if (!fs::exists(run.log()) || !fs::exists(run.heldout_log())) return false;
  write_loss_curve(out, run);
  return true;
}

}  // namespace

int eval(const EvalCommand& command) {
  UpsamplingNetwork network = load_network(command.model);
  const ClipSet clips = open_heldout(command, network.options());
  const std::size_t shown = find_clip(clips, command.clip);
  const std::vector<ClipScores> scores = evaluate(network, clips);
  std::printf("%s\nthe network: %s\n\n", table_of(scores).c_str(), verdict(mean_of(scores)).c_str());
  if (!command.json.empty()) {
    write_json(command.json, network.options(), scores);
    std::printf("numbers  %s\n", command.json.c_str());
  }

  const std::string out = command.out.empty() ? (fs::path(command.model).parent_path() / "eval").string() : command.out;
  std::error_code error;
  fs::create_directories(out, error);
  pp::require<pp::Error>(!error, out, ": the folder cannot be made: ", error.message());
  write_sound_and_panels(out, network, clips.clips[shown], scores[shown]);
  std::printf("sound    %s/%s.{low,sinc,network,original}.wav\n", out.c_str(), clips.clips[shown].name().c_str());
  const bool has_log = write_log_picture(command.model, out);
  bool drew = run_gnuplot(out, kSpectrogramScript, kSpectrogramPicture);
  if (drew) std::printf("pictures %s/%s", out.c_str(), kSpectrogramPicture);
  if (drew && has_log) {
    drew = run_gnuplot(out, kLossScript, kLossPicture);
    std::printf(", %s/%s", out.c_str(), kLossPicture);
  }
  std::printf(drew ? "\n" : "pictures none: gnuplot is not installed; install it and run gnuplot on the .gp files in %s\n",
              out.c_str());
  return 0;
}

}  // namespace superres
