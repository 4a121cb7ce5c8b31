#include "settings.hpp"

#include <charconv>
#include <cmath>

namespace superres {
namespace {

using polyphase::Error;
using polyphase::require;

// The shortest text that is read back as the same number.
template <class T>
std::string text_of(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

template <class T>
void read(const std::map<std::string, std::string>& texts, const char* name, T& value) {
  const auto entry = texts.find(name);
  require<Error>(entry != texts.end(), "train: the checkpoint does not say '", name, "': it cannot be resumed");
  const std::string& text = entry->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<Error>(error == std::errc() && end == text.data() + text.size(), "train: expected a number for '", name, "', got '",
                 text, "'");
}

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
  read(texts, "steps", settings.steps);
  read(texts, "batch", settings.batch);
  read(texts, "window", settings.window);
  read(texts, "lr", settings.learning_rate);
  read(texts, "spectral-weight", settings.spectral_weight);
  read(texts, "seed", settings.seed);
  read(texts, "heldout-fraction", settings.heldout_fraction);
  return settings;
}

}  // namespace superres
