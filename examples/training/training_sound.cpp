#include "training/training_sound.hpp"

#include <filesystem>

#include "training/split.hpp"

namespace training {

namespace fs = std::filesystem;

std::string sound_folder(const SoundRequest& request, const std::optional<SoundRecord>& before) {
  if (request.is_given) return request.folder;
  pp::require<pp::Error>(before.has_value(), "train --resume: ", request.run.last(),
                         " has no record of its training sound, because an older version wrote it: expected --data");
  std::error_code ignored;
  pp::require<pp::Error>(fs::is_directory(before->folder, ignored), "train --resume: the run in ", request.run.path,
                         " was trained on the sound in ", before->folder,
                         ", and there is no such folder: expected --data with the folder's new place");
  return before->folder;
}

TrainingSound open_sound(const SoundRequest& request, const std::optional<SoundRecord>& before, const Warn& warn) {
  const Split split = split_folder(request.folder, request.heldout_fraction, warn);
  TrainingSound sound{.train = {}, .heldout = {}, .record = record_of(request.folder, split)};
  if (before) {
    const std::string different = difference(*before, sound.record);
    pp::require<pp::Error>(different.empty(), "train --resume: the sound in ", request.folder, " is not what the run in ",
                           request.run.path, " learned from: ", different);
  }
  ClipOptions options{.rate = request.rate,
                      .factor = request.factor,
                      .shortest = request.window,
                      .cache_bytes = request.cache_megabytes * (1 << 20),
                      .takes_lower_rates = request.takes_lower_rates};
  sound.train = open_clips(split.train, options, warn);
  options.rate = sound.train.rate;
  options.shortest = request.shortest_heldout;
  options.cache_bytes /= 4;
  options.silence = false;
  sound.heldout = open_clips(split.heldout, options, warn);
  return sound;
}

}  // namespace training
