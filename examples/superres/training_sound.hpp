#pragma once
// The sound that a run is trained and checked on.

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

/// The folder of a resumed run's sound: --data if it was given, else the folder of the record. Throws Error if there is
/// neither, or if the record's folder does not exist.
[[nodiscard]] std::string sound_folder(const TrainCommand& command, const std::optional<SoundRecord>& before);

/// Opens the sound in command.data. The model's rate is that of `model`, or of the files if that is 0. Throws Error with the
/// differences if the files are not those of `before`.
[[nodiscard]] TrainingSound open_sound(const TrainCommand& command, const ModelOptions& model, const TrainSettings& settings,
                                       const std::optional<SoundRecord>& before, const Warn& warn);

}  // namespace superres
