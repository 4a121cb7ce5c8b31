#pragma once
// The sound that a run learns from and is checked on.

#include <optional>
#include <string>

#include "training/clip.hpp"
#include "training/run_folder.hpp"
#include "training/sound_record.hpp"

namespace training {

struct TrainingSound {
  ClipSet train;
  ClipSet heldout;
  SoundRecord record;
};

/// Which sound, and how it is cut.
struct SoundRequest {
  std::string folder;     ///< --data
  bool is_given = false;  ///< --data was on the command line
  RunFolder run;
  int rate = 0;                       ///< of the model, in Hz; 0: the one that most files have
  int factor = 1;                     ///< between the model's rates; 1: there is no low rate
  bool takes_lower_rates = false;     ///< files of a lower rate are resampled too
  std::int64_t window = 0;            ///< samples; shorter training clips are left out
  std::int64_t shortest_heldout = 1;  ///< samples
  double heldout_fraction = 0.1;
  std::int64_t cache_megabytes = 1024;
};

/// The folder that a resumed run takes its sound from: --data where it was given, else the one of the record. Throws Error
/// where neither says, or the record's folder is gone.
[[nodiscard]] std::string sound_folder(const SoundRequest& request, const std::optional<SoundRecord>& before);

/// Opens the sound in request.folder. Throws Error where the files are not those of `before`, with what is different.
[[nodiscard]] TrainingSound open_sound(const SoundRequest& request, const std::optional<SoundRecord>& before, const Warn& warn);

}  // namespace training
