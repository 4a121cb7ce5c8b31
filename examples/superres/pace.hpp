#pragma once
// The time that a training will take on this machine, estimated before it begins.

#include <cstdint>
#include <string>

#include "trainer.hpp"
#include "training/training_sound.hpp"

namespace superres {

struct Pace {
  double step = 0;   ///< seconds of a training step
  double check = 0;  ///< seconds of a check on all held-out clips
};

/// A shorter run ends before its pace is measured.
inline constexpr std::int64_t kShortestTimed = 100;

/// Runs some steps on a copy of the run, which is unchanged, and scores the shortest held-out clip: two to four seconds with
/// the defaults.
[[nodiscard]] Pace measure_pace(Trainer& trainer, const TrainingSound& sound);

/// "about 40 seconds", "about 2.5 minutes", "about 3 hours": rounded to less than a fifth.
[[nodiscard]] std::string roughly(double seconds);

}  // namespace superres
