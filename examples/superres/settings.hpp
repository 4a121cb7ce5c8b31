#pragma once
// The settings of a training run. The run's checkpoints contain all of them.

#include <cstdint>
#include <map>
#include <string>

#include "model.hpp"

namespace superres {

struct TrainSettings {
  std::int64_t steps = 1600;      ///< in all
  std::int64_t batch = 8;         ///< windows a step
  std::int64_t window = 4096;     ///< samples of a window, at the model's rate
  double learning_rate = 2e-3;    ///< after the warm-up; falls along a cosine to 0
  double spectral_weight = 0.3;   ///< weight of the spectral loss, added to the waveform loss
  std::uint64_t seed = 0;         ///< seed of weights and windows
  double heldout_fraction = 0.1;  ///< of a folder without train and heldout subfolders
};

/// Throws Error with the option, its range and its value.
void validate(const TrainSettings& settings, const ModelOptions& model);

/// As text for a checkpoint, with the names of the program's options, and back. Numbers keep their bits. Throws Error with the
/// name of a missing or malformed entry.
[[nodiscard]] std::map<std::string, std::string> to_texts(const TrainSettings& settings);
[[nodiscard]] TrainSettings train_settings_from(const std::map<std::string, std::string>& texts);

}  // namespace superres
