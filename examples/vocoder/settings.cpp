#include "settings.hpp"

#include "training/texts.hpp"

namespace vocoder {

using training::read_text;
using training::text_at;
using training::text_of;

TrainSettings complete(TrainSettings settings, std::int64_t world) {
  const pp::GanRecipe recipe = pp::GanRecipe::parse(settings.config);
  if (settings.batch == 0) settings.batch = recipe.batch_size;
  if (settings.segment == 0) settings.segment = recipe.segment_size;
  pp::require<pp::Error>(settings.steps >= 1, "train: expected --steps of at least 1, got ", settings.steps);
  pp::require<pp::Error>(settings.batch >= 1 && settings.batch <= 65536, "train: expected --batch in 1..65536, got ",
                         settings.batch);
  pp::require<pp::Error>(settings.batch % world == 0, "train: expected --batch that the ", world,
                         " processes share evenly, got ", settings.batch);
  pp::require<pp::Error>(settings.parts >= 1 && settings.batch / world % settings.parts == 0,
                         "train: expected --accumulate that divides a process' batch of ", settings.batch / world, ", got ",
                         settings.parts);
  pp::require<pp::Error>(
      settings.segment >= recipe.hop_size && settings.segment % recipe.hop_size == 0 && settings.segment <= (1 << 24),
      "train: expected --segment to be a multiple of hop_size=", recipe.hop_size, " up to 16777216, got ", settings.segment);
  pp::require<pp::Error>(settings.average_decay >= 0 && settings.average_decay < 1, "train: expected --ema in [0, 1), got ",
                         settings.average_decay);
  pp::require<pp::Error>(settings.heldout_fraction > 0 && settings.heldout_fraction < 1,
                         "train: expected --heldout-fraction between 0 and 1, got ", settings.heldout_fraction);
  pp::require<pp::Error>(settings.precision == "fp32" || settings.precision == "tf32" || settings.precision == "bf16",
                         "train: expected --precision fp32, tf32 or bf16, got ", settings.precision);
  return settings;
}

std::map<std::string, std::string> to_texts(const TrainSettings& settings) {
  return {{"config", settings.config},
          {"steps", text_of(settings.steps)},
          {"batch", text_of(settings.batch)},
          {"segment", text_of(settings.segment)},
          {"accumulate", text_of(settings.parts)},
          {"recompute", text_of(static_cast<int>(settings.recomputes))},
          {"ema", text_of(settings.average_decay)},
          {"seed", text_of(settings.seed)},
          {"heldout-fraction", text_of(settings.heldout_fraction)},
          {"decays-before", text_of(settings.decays_before)},
          {"precision", settings.precision}};
}

TrainSettings train_settings_from(const std::map<std::string, std::string>& texts) {
  TrainSettings settings;
  int recomputes = 0;
  settings.config = text_at(texts, "config");
  read_text(texts, "steps", settings.steps);
  read_text(texts, "batch", settings.batch);
  read_text(texts, "segment", settings.segment);
  read_text(texts, "accumulate", settings.parts);
  read_text(texts, "recompute", recomputes);
  read_text(texts, "ema", settings.average_decay);
  read_text(texts, "seed", settings.seed);
  read_text(texts, "heldout-fraction", settings.heldout_fraction);
  read_text(texts, "decays-before", settings.decays_before);
  settings.recomputes = recomputes != 0;
  settings.precision = text_at(texts, "precision");
  return settings;
}

}  // namespace vocoder
