#pragma once
// The training of a vocoder against discriminators, as published.
//
//   const pp::GanRecipe recipe = pp::GanRecipe::parse(json);
//   auto generator = pp::make_network(recipe.network, json);
//   pp::weight_norm(*generator);
//   pp::GanTraining training(*generator, recipe);
//   for (const pp::Tensor& audio : batches) {       // (N, 1, segment_size)
//     const pp::GanNumbers numbers = training.step(audio).read();
//   }

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../../networks/gan/recipe.hpp"
#include "../../networks/network.hpp"
#include "../../optim/adam.hpp"

namespace polyphase {

/// mean((1 - D(y))^2) + mean(D(y')^2), summed over discriminators; y real, y' generated (Mao et al., arXiv 1611.04076).
[[nodiscard]] Tensor lsgan_discriminator_loss(const std::vector<FeatureMaps>& real, const std::vector<FeatureMaps>& generated);
/// mean((1 - D(y'))^2), summed over discriminators.
[[nodiscard]] Tensor lsgan_generator_loss(const std::vector<FeatureMaps>& generated);
/// Twice the sum over all maps of mean(|map(y) - map(y')|) (Kumar et al., arXiv 1910.06711; the factor is HiFi-GAN's). The maps
/// of y get no gradient. Throws ShapeError where the maps do not match.
[[nodiscard]] Tensor feature_matching_loss(const std::vector<FeatureMaps>& real, const std::vector<FeatureMaps>& generated);

/// What a step came to.
struct GanNumbers {
  double discriminator = 0;  ///< loss of all discriminators
  double adversarial = 0;    ///< the generator's part of the game
  double features = 0;       ///< feature matching, times 2
  double mel = 0;            ///< L1 of the log-mels, times mel_weight
  double generator_norm = 0;
  std::vector<double> discriminator_norms{};  ///< of the gradients, before clipping, in the order of make_discriminators()
  [[nodiscard]] double generator() const { return adversarial + features + mel; }
  /// Whether all numbers are.
  [[nodiscard]] bool is_finite() const;
};

/// The numbers of a step, still on the device.
class GanStep {
 public:
  explicit GanStep(const Tensor& numbers) : numbers_(numbers) {}
  /// Waits for the device.
  [[nodiscard]] GanNumbers read() const;
  /// f64, the members of GanNumbers in order; does not wait.
  [[nodiscard]] const Tensor& numbers() const { return numbers_; }

 private:
  Tensor numbers_;
};

struct GanStepOptions {
  /// The batch is computed in so many equal parts, whose gradients add up to the batch's. With more than one part the generator
  /// runs twice forward.
  std::int64_t parts = 1;
  /// Activation checkpointing: the generator's intermediate results are not kept but computed again in the backward pass
  /// (layers/recompute.hpp). No bit changes.
  bool recomputes = false;
};

/// A generator, its discriminators, and an AdamW for each side. The learning rates decay when the caller says so.
/// Computation follows the caller's AutocastGuard, mels and losses are f32 or f64. The same bits every run.
class GanTraining {
 public:
  /// Called before each backward pass; `is_last` is false for all parts of a batch but the last, behind which the gradients are
  /// complete.
  using BeforeBackward = std::function<void(bool is_last)>;

  /// The generator takes mels and must outlive this; it has its dtype and device, and the discriminators get both.
  /// Discriminators start from the thread's random generator.
  GanTraining(Network& generator, const GanRecipe& recipe);

  /// One update of the discriminators, then one of the generator: y' = G(mel(y)); D learns from y and y' detached; G learns
  /// through D, whose weights get no gradients meanwhile. `audio` (N, 1, L), L a multiple of hop_size. Throws ShapeError
  /// where it does not fit, also where N is no multiple of options.parts.
  GanStep step(const Tensor& audio, const GanStepOptions& options = {});
  /// Sets both learning rates to learning_rate * lr_decay^times: epochs of HiFi-GAN, steps of BigVGAN.
  void set_decays(std::int64_t times);
  [[nodiscard]] double learning_rate() const { return generator_optimizer_.learning_rate(); }

  [[nodiscard]] const GanRecipe& recipe() const { return recipe_; }
  [[nodiscard]] Network& generator() { return generator_; }
  [[nodiscard]] NamedDiscriminators& discriminators() { return discriminators_; }
  [[nodiscard]] AdamW& generator_optimizer() { return generator_optimizer_; }
  [[nodiscard]] AdamW& discriminator_optimizer() { return discriminator_optimizer_; }
  /// The generator's input of audio (N, 1, L): (N, num_mels, frames).
  [[nodiscard]] Tensor input_mel(const Tensor& audio);
  /// The mean |difference| of two signals' log-mels, (N, 1, L) each, as the originals' validation has it.
  [[nodiscard]] Tensor mel_distance(const Tensor& generated, const Tensor& audio);
  /// For data parallel, which sends gradients during the last pass only.
  void on_backward(BeforeBackward before) { before_backward_ = std::move(before); }

 private:
  [[nodiscard]] Tensor learn_discriminators(const std::vector<Tensor>& audio, const std::vector<Tensor>& generated);
  [[nodiscard]] Tensor learn_generator(const std::vector<Tensor>& audio, const Tensor& generated, bool recomputes);
  [[nodiscard]] Tensor generator_losses(const Tensor& audio, const Tensor& generated, bool is_last, double share);
  [[nodiscard]] Tensor generate(const Tensor& audio, bool recomputes);
  void run_backward(const Tensor& loss, bool is_last) const;
  [[nodiscard]] Tensor clipped_norm(Module& module) const;

  Network& generator_;
  GanRecipe recipe_;
  NamedDiscriminators discriminators_;
  MelSpectrogram input_mel_;
  MelSpectrogram loss_mel_;
  AdamW generator_optimizer_;
  AdamW discriminator_optimizer_;
  BeforeBackward before_backward_;
};

}  // namespace polyphase
