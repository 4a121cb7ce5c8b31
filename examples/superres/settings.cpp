#include "settings.hpp"

#include <cmath>

#include "training/texts.hpp"

namespace superres {
namespace {

using polyphase::Error;
using polyphase::require;
using training::read_text;
using training::text_of;

}  // namespace

void validate(const TrainSettings& settings, const ModelOptions& model) {
  require<Error>(settings.steps >= 1, "train: expected --steps of at least 1, got ", settings.steps);
  require<Error>(settings.batch >= 1 && settings.batch <= 4096, "train: expected --batch in 1..4096, got ", settings.batch);
  require<Error>(settings.window >= 2048 && settings.window <= (1 << 24) && settings.window % model.factor == 0,
                 "train: expected --window in 2048..16777216 that ", model.factor, " divides, got ", settings.window);
  require<Error>(std::isfinite(settings.learning_rate) && settings.learning_rate > 0, "train: expected --lr above 0, got ",
                 settings.learning_rate);
  require<Error>(std::isfinite(settings.spectral_weight) && settings.spectral_weight >= 0,
                 "train: expected --spectral-weight of at least 0, got ", settings.spectral_weight);
  require<Error>(settings.heldout_fraction > 0 && settings.heldout_fraction < 1,
                 "train: expected --heldout-fraction between 0 and 1, got ", settings.heldout_fraction);
}

std::map<std::string, std::string> to_texts(const TrainSettings& settings) {
  return {{"steps", text_of(settings.steps)},
          {"batch", text_of(settings.batch)},
          {"window", text_of(settings.window)},
          {"lr", text_of(settings.learning_rate)},
          {"spectral-weight", text_of(settings.spectral_weight)},
          {"seed", text_of(settings.seed)},
          {"heldout-fraction", text_of(settings.heldout_fraction)}};
}

TrainSettings train_settings_from(const std::map<std::string, std::string>& texts) {
  TrainSettings settings;
  read_text(texts, "steps", settings.steps);
  read_text(texts, "batch", settings.batch);
  read_text(texts, "window", settings.window);
  read_text(texts, "lr", settings.learning_rate);
  read_text(texts, "spectral-weight", settings.spectral_weight);
  read_text(texts, "seed", settings.seed);
  read_text(texts, "heldout-fraction", settings.heldout_fraction);
  return settings;
}

}  // namespace superres
