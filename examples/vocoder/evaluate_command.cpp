#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "evaluation.hpp"
#include "networks/files/model_file.hpp"
#include "report.hpp"
#include "training/pictures.hpp"
#include "training/run_files.hpp"
#include "training/split.hpp"

namespace vocoder {
namespace {

namespace fs = std::filesystem;
using Ordered = nlohmann::ordered_json;

void warn_of_clip(const std::string& text) { std::fprintf(stderr, "vocoder: warning: %s\n", text.c_str()); }

Ordered to_json(const ClipScores& one) {
  return {{"clip", one.name}, {"seconds", one.seconds}, {"mel_distance", one.scores.mel}, {"stft_distance", one.scores.stft}};
}

void write_json(const std::string& path, const std::vector<ClipScores>& scores) {
  Ordered clips = Ordered::array();
  for (const ClipScores& one : scores) clips.push_back(to_json(one));
  write_text(path, Ordered{{"clips", clips}, {"mean", to_json(mean_of(scores))}}.dump(2) + "\n");
}

pp::Model load(const std::string& path, const std::string& config) {
  pp::Model model = pp::load_model(path, {.config = config.empty() ? "" : read_config(config)});
  pp::require<pp::Error>(model.network == "hifigan" || model.network == "bigvgan", path,
                         ": expected a generator of HiFi-GAN or BigVGAN, got ", model.network);
  model.net->to(pp::default_device());
  return model;
}

}  // namespace

int evaluate_command(const EvaluateCommand& command) {
  const pp::Model model = load(command.model, command.config);
  const Vocoder vocoder{*model.net, model.config};
  const std::vector<std::string> paths = command.all_files
                                             ? find_audio(command.data, warn_of_clip)
                                             : split_folder(command.data, command.heldout_fraction, warn_of_clip).heldout;
  pp::require<pp::Error>(!paths.empty(), command.data, ": there is no sound file in it");
  const ClipSet clips = open_clips(paths,
                                   {.rate = static_cast<int>(model.net->format().sampling_rate),
                                    .factor = 1,
                                    .shortest = kShortest,
                                    .silence = false,
                                    .takes_lower_rates = true},
                                   warn_of_clip);
  const std::vector<ClipScores> scores = evaluate(vocoder, clips);
  std::printf("%s\n", table_of(scores).c_str());
  if (!command.json.empty()) {
    write_json(command.json, scores);
    std::printf("numbers  %s\n", command.json.c_str());
  }
  const std::string out = command.out.empty() ? (fs::path(command.model).parent_path() / "eval").string() : command.out;
  make_folder(out);
  const Clip& shown = clips.clips.front();
  write_clip(out, vocoder, shown, clips.rate);
  std::printf("sound    %s/%s.{original,vocoder}.wav\n", out.c_str(), shown.name().c_str());
  draw(out, false);
  return 0;
}

int synthesize(const SynthesizeCommand& command) {
  const pp::Model model = load(command.model, command.config);
  const Vocoder vocoder{*model.net, model.config};
  const auto rate = static_cast<int>(model.net->format().sampling_rate);
  const ClipSet clips = open_clips({command.input}, {.rate = rate, .factor = 1, .takes_lower_rates = true},
                                   [](const std::string& text) { throw pp::Error(text); });
  Audio audio{.rate = rate, .channels = {}};
  for (const Clip& clip : clips.clips) audio.channels.push_back(resynthesize(vocoder, clip.high(0, clip.length())));
  write_wav(command.output, audio);
  std::printf("%s: %s at %d Hz\n", command.output.c_str(),
              duration(clips.seconds() / static_cast<double>(clips.clips.size())).c_str(), rate);
  return 0;
}

}  // namespace vocoder
