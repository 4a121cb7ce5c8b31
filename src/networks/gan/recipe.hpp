#pragma once
// How the published vocoders are trained: the numbers of their configurations.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../layers/spectral/mel_spectrogram.hpp"
#include "../../networks/gan/discriminators.hpp"

namespace polyphase {

/// The recipe of HiFi-GAN (jik876/hifi-gan@4769534:train.py) or of BigVGAN v1 (NVIDIA/BigVGAN@7d2b454:train.py), which also
/// trains BigVGAN v2's generators here. Every entry is a key of the original's configuration unless said.
struct GanRecipe {
  std::string network;  ///< "hifigan", or "bigvgan" where the configuration has the key `activation`
  std::int64_t batch_size = 16;
  std::int64_t segment_size = 8192;  ///< samples, a multiple of hop_size
  std::int64_t hop_size = 256;
  std::int64_t sampling_rate = 0;  ///< Hz
  double learning_rate = 2e-4;
  double beta1 = 0.8;       ///< adam_b1
  double beta2 = 0.99;      ///< adam_b2
  double lr_decay = 0.999;  ///< of both learning rates, after each epoch, BigVGAN's after each step
  double clip_norm = 0;     ///< clip_grad_norm, of each network's gradient; 0, HiFi-GAN's: none; BigVGAN: 1000 where absent
  double mel_weight = 45;   ///< lambda_melloss
  std::uint64_t seed = 1234;
  std::string config;  ///< the JSON itself

  /// Throws FormatError naming the entry that is missing or does not fit, and NotImplemented for a discriminator or loss that
  /// is not here: spectral norm in all of BigVGAN's, and what BigVGAN v2's configurations ask for, the CQT discriminator and
  /// the mel loss at several scales. Set these keys to false to train a v2 generator by the recipe of v1.
  [[nodiscard]] static GanRecipe parse(const std::string& config);
};

/// The discriminators of a recipe under the names of its checkpoints: "mpd" and "msd", or "mpd" and BigVGAN's "mrd". Key
/// `discriminator_channel_mult` scales their channels, HiFi-GAN's too, which is ours; `mpd_reshapes` and `resolutions` are
/// BigVGAN's. Throws as GanRecipe::parse() does.
using NamedDiscriminators = std::vector<std::pair<std::string, std::unique_ptr<Discriminator>>>;
[[nodiscard]] NamedDiscriminators make_discriminators(const GanRecipe& recipe);
/// The mel spectrogram that the loss compares: as the generator's input (networks/mel.hpp), but up to fmax_for_loss, half the
/// sampling rate where that is absent or null. Throws as hifigan_mel().
[[nodiscard]] MelSpectrogram gan_loss_mel(const std::string& config);

}  // namespace polyphase
