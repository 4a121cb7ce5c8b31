#include "training_sound.hpp"

#include <filesystem>

#include "metrics.hpp"

namespace superres {

namespace fs = std::filesystem;

std::string sound_folder(const TrainCommand& command, const std::optional<SoundRecord>& before) {
  if (command.given.contains("data")) return command.data;
  pp::require<pp::Error>(before.has_value(), "train --resume: ", command.run.last(),
                         " has no record of its training sound, because an older version wrote it: expected --data");
  std::error_code ignored;
  pp::require<pp::Error>(fs::is_directory(before->folder, ignored), "train --resume: the run in ", command.run.path,
                         " was trained on the sound in ", before->folder,
                         ", and there is no such folder: expected --data with the folder's new place");
  return before->folder;
}

TrainingSound open_sound(const TrainCommand& command, const ModelOptions& model, const TrainSettings& settings,
                         const std::optional<SoundRecord>& before, const Warn& warn) {
  const Split split = split_folder(command.data, settings.heldout_fraction, warn);
  TrainingSound sound{.train = {}, .heldout = {}, .record = record_of(command.data, split)};
  if (before) {
    const std::string different = difference(*before, sound.record);
    pp::require<pp::Error>(different.empty(), "train --resume: the sound in ", command.data, " is not what the run in ",
                           command.run.path, " learned from: ", different);
  }
  ClipOptions options{.rate = model.rate,
                      .factor = model.factor,
                      .shortest = settings.window,
                      .cache_bytes = command.cache_megabytes * (1 << 20)};
  sound.train = open_clips(split.train, options, warn);
  options.rate = sound.train.rate;
  options.shortest = kLsdWindow;
  options.cache_bytes /= 4;
  options.silence = false;
  sound.heldout = open_clips(split.heldout, options, warn);
  return sound;
}

}  // namespace superres
