#pragma once
// The settings of a training run. Checkpoints hold all of them.

#include <cstdint>
#include <map>
#include <string>

#include "networks/gan/recipe.hpp"
#include "shared.hpp"

namespace vocoder {

struct TrainSettings {
  std::string config;              ///< the original's JSON
  std::int64_t steps = 1000;       ///< in all
  std::int64_t batch = 0;          ///< segments a step, over all processes; 0: the configuration's batch_size
  std::int64_t segment = 0;        ///< samples of a segment; 0: the configuration's segment_size
  std::int64_t parts = 1;          ///< gradient accumulation: parts of a process' batch that are computed one after another
  bool recomputes = false;         ///< activation checkpointing of the generator
  double average_decay = 0;        ///< of the generator's averaged weights; 0: none, as published
  std::uint64_t seed = 1234;       ///< of weights and segments
  double heldout_fraction = 0.1;   ///< of a folder without train and heldout subfolders
  std::int64_t decays_before = 0;  ///< of the learning rate, in the run that the initial weights come from
  std::string precision = "fp32";  ///< or "tf32" (GPUs), or "bf16": autocast
};

/// Fills in what the configuration says, and checks everything. Throws Error naming the option, its range and what came, and as
/// GanRecipe::parse() does. `world`: processes that share a batch.
[[nodiscard]] TrainSettings complete(TrainSettings settings, std::int64_t world);

/// As text for a checkpoint, under the names of the program's options, and back. Numbers keep their bits. Throws Error naming a
/// missing or malformed entry.
[[nodiscard]] std::map<std::string, std::string> to_texts(const TrainSettings& settings);
[[nodiscard]] TrainSettings train_settings_from(const std::map<std::string, std::string>& texts);

}  // namespace vocoder
