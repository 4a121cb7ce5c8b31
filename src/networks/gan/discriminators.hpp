#pragma once
// The discriminators that HiFi-GAN and BigVGAN are trained against, under the originals' names.

#include <cstdint>
#include <memory>
#include <vector>

#include "../../layers/module.hpp"

namespace polyphase {

/// The outputs of a discriminator's layers behind their LeakyReLU(0.1), and last its scores. Layouts are the discriminator's.
using FeatureMaps = std::vector<Tensor>;

/// The maps of two batches.
struct FeaturesOfTwo {
  std::vector<FeatureMaps> first, second;
};

/// Several discriminators, each of which sees the audio in its own way. Parameters are under weight norm (spectral norm where
/// said), "discriminators.0.convs.0.weight_g" and so on, with the shapes of the original code.
class Discriminator : public Module {
 public:
  /// audio (N, 1, L) -> the maps of each discriminator. Throws ShapeError.
  [[nodiscard]] virtual std::vector<FeatureMaps> features(const Tensor& audio) = 0;
  /// features(first) and features(second), of one shape, within rounding. Where no state counts the forwards, as that of
  /// spectral norm does, both are one batch, which needs half of the launches.
  [[nodiscard]] virtual FeaturesOfTwo features_of_two(const Tensor& first, const Tensor& second);
  /// All scores: (N, number of scores).
  [[nodiscard]] Tensor forward(const Tensor& audio) override;
};

/// HiFi-GAN's multi-period discriminator (Kong et al., arXiv 2010.05646; jik876/hifi-gan@4769534:models.py): the audio in
/// columns of every p-th sample, reflected to a multiple of p. The original's Conv2d with a kernel (k, 1) is a Conv1d over the
/// columns; weights have its shape (out, in, k, 1).
class MultiPeriodDiscriminator : public Discriminator {
 public:
  struct Options {
    std::vector<std::int64_t> periods = {2, 3, 5, 7, 11};
    double channel_mult =
        1;  ///< times 32, 128, 512, 1024 and 1024 channels, rounded down (BigVGAN's discriminator_channel_mult)
  };
  MultiPeriodDiscriminator() : MultiPeriodDiscriminator(Options{}) {}
  /// Throws ShapeError naming the option that is out of range.
  explicit MultiPeriodDiscriminator(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] std::vector<FeatureMaps> features(const Tensor& audio) override;
  [[nodiscard]] FeaturesOfTwo features_of_two(const Tensor& first, const Tensor& second) override;

 private:
  class Part;
  std::vector<std::shared_ptr<Part>> parts_;
};

/// HiFi-GAN's multi-scale discriminator (the same source): the audio at its rate, under spectral norm, and at a half and a
/// quarter of it, averaged over 4 samples.
class MultiScaleDiscriminator : public Discriminator {
 public:
  struct Options {
    double channel_mult = 1;  ///< times 128, 128, 256, 512, 1024, 1024 and 1024 channels, rounded down
  };
  MultiScaleDiscriminator() : MultiScaleDiscriminator(Options{}) {}
  /// Throws ShapeError where the channels are not divisible by 16, the groups.
  explicit MultiScaleDiscriminator(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] std::vector<FeatureMaps> features(const Tensor& audio) override;
  [[nodiscard]] FeaturesOfTwo features_of_two(const Tensor& first, const Tensor& second) override;

 private:
  class Part;
  std::vector<std::shared_ptr<Part>> parts_;
};

/// BigVGAN's multi-resolution discriminator (Lee et al., arXiv 2206.04658; NVIDIA/BigVGAN@7d2b454:discriminators.py):
/// magnitudes of STFTs without a window. Maps are (N, channels, bins, frames); weights have Conv2d's shape (out, in, 3, k), the
/// first dimension of the kernel along the bins (docs/decisions/0015).
class MultiResolutionDiscriminator : public Discriminator {
 public:
  struct Resolution {
    std::int64_t n_fft = 0;
    std::int64_t hop_length = 0;
    std::int64_t win_length = 0;
  };
  struct Options {
    std::vector<Resolution> resolutions = {{1024, 120, 600}, {2048, 240, 1200}, {512, 50, 240}};
    double channel_mult = 1;  ///< times 32 channels, rounded down
  };
  MultiResolutionDiscriminator() : MultiResolutionDiscriminator(Options{}) {}
  /// Throws ShapeError naming the option that is out of range.
  explicit MultiResolutionDiscriminator(const Options& options);
  void visit(Visitor& visitor) override;
  /// Throws ShapeError where L is too short to be reflected.
  [[nodiscard]] std::vector<FeatureMaps> features(const Tensor& audio) override;
  [[nodiscard]] FeaturesOfTwo features_of_two(const Tensor& first, const Tensor& second) override;

 private:
  class Part;
  std::vector<std::shared_ptr<Part>> parts_;
};

}  // namespace polyphase
