#include "networks/gan/recipe.hpp"

#include "networks/config.hpp"
#include "networks/mel.hpp"

namespace polyphase {
namespace {

constexpr const char* kName = "gan";

double positive(const NetworkConfig& json, const char* key, double otherwise) {
  const double value = json.number(key, otherwise);
  json.expect(value > 0, "expected ", key, " above 0, got ", value);
  return value;
}

double share(const NetworkConfig& json, const char* key, double otherwise) {
  const double value = json.number(key, otherwise);
  json.expect(value >= 0 && value < 1, "expected ", key, " in [0, 1), got ", value);
  return value;
}

// What a constructor refuses, in the words of a configuration's.
template <class Made, class Options>
std::unique_ptr<Discriminator> made(const NetworkConfig& json, const Options& options) {
  try {
    return std::make_unique<Made>(options);
  } catch (const ShapeError& error) {
    json.expect(false, error.what());
    throw;
  }
}

MultiResolutionDiscriminator::Options resolution_options(const NetworkConfig& json, double mult) {
  MultiResolutionDiscriminator::Options options{.channel_mult = json.number("mrd_channel_mult", mult)};
  if (!json.has("resolutions")) return options;
  options.resolutions.clear();
  for (const std::vector<std::int64_t>& one : json.lists_of_counts("resolutions")) {
    json.expect(one.size() == 3, "expected resolutions of three numbers, got ", one.size());
    options.resolutions.push_back({one[0], one[1], one[2]});
  }
  return options;
}

}  // namespace

GanRecipe GanRecipe::parse(const std::string& config) {
  const NetworkConfig json(kName, config);
  GanRecipe recipe;
  recipe.network = json.has("activation") ? "bigvgan" : "hifigan";
  recipe.batch_size = json.count_or("batch_size", recipe.batch_size);
  recipe.segment_size = json.count_or("segment_size", recipe.segment_size);
  recipe.hop_size = json.count("hop_size");
  recipe.sampling_rate = json.count("sampling_rate");
  json.expect(recipe.segment_size % recipe.hop_size == 0,
              "expected segment_size to be a multiple of hop_size=", recipe.hop_size, ", got ", recipe.segment_size);
  recipe.learning_rate = positive(json, "learning_rate", recipe.learning_rate);
  recipe.beta1 = share(json, "adam_b1", recipe.beta1);
  recipe.beta2 = share(json, "adam_b2", recipe.beta2);
  recipe.lr_decay = positive(json, "lr_decay", recipe.lr_decay);
  recipe.clip_norm = json.number("clip_grad_norm", recipe.network == "bigvgan" ? 1000 : 0);
  json.expect(recipe.clip_norm >= 0, "expected clip_grad_norm of at least 0, got ", recipe.clip_norm);
  recipe.mel_weight = positive(json, "lambda_melloss", recipe.mel_weight);
  recipe.seed = static_cast<std::uint64_t>(json.count_or("seed", 1234, 0));
  for (const char* key : {"use_spectral_norm", "mrd_use_spectral_norm", "use_cqtd_instead_of_mrd", "use_multiscale_melloss"})
    require<NotImplemented>(!json.flag(key, false), kName, ": config: expected ", key, " false, got true");
  recipe.config = config;
  return recipe;
}

NamedDiscriminators make_discriminators(const GanRecipe& recipe) {
  const NetworkConfig json(kName, recipe.config);
  const double mult = json.number("discriminator_channel_mult", 1);
  MultiPeriodDiscriminator::Options periods{.channel_mult = mult};
  if (json.has("mpd_reshapes")) periods.periods = json.counts("mpd_reshapes");
  NamedDiscriminators list;
  list.emplace_back("mpd", made<MultiPeriodDiscriminator>(json, periods));
  if (recipe.network == "hifigan")
    list.emplace_back("msd", made<MultiScaleDiscriminator>(json, MultiScaleDiscriminator::Options{.channel_mult = mult}));
  else
    list.emplace_back("mrd", made<MultiResolutionDiscriminator>(json, resolution_options(json, mult)));
  return list;
}

MelSpectrogram gan_loss_mel(const std::string& config) {
  MelSpectrogram::Options options = hifigan_mel(config).options();
  options.mel.f_max = NetworkConfig(kName, config).number("fmax_for_loss", 0);
  return MelSpectrogram(options);
}

}  // namespace polyphase
