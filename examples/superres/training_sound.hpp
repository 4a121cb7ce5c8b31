#pragma once
// The sound that a run learns from and is checked on.

#include <optional>
#include <string>

#include "clip.hpp"
#include "commands.hpp"
#include "sound_record.hpp"

namespace superres {

struct TrainingSound {
  ClipSet train;
  ClipSet heldout;
  SoundRecord record;
};

/// The folder that a resumed run takes its sound from: --data where it was given, else the one of the record. Throws Error
/// where neither says, or the record's folder is gone.
[[nodiscard]] std::string sound_folder(const TrainCommand& command, const std::optional<SoundRecord>& before);

/// Opens the sound in command.data. The model's rate comes from `model`, or from the files where that is 0. Throws Error where
/// the files are not those of `before`, with what is different.
[[nodiscard]] TrainingSound open_sound(const TrainCommand& command, const ModelOptions& model, const TrainSettings& settings,
                                       const std::optional<SoundRecord>& before, const Warn& warn);

}  // namespace superres
