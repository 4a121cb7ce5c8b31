#include "networks/gan/training.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "layers/losses.hpp"
#include "layers/recompute.hpp"
#include "layers/weight_norm.hpp"
#include "networks/gan/parts.hpp"
#include "networks/mel.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "optim/clip.hpp"
#include "optim/schedulers.hpp"

namespace polyphase {
namespace {

constexpr const char* kTraining = "gan";

Tensor total(const std::vector<Tensor>& terms) {
  return std::accumulate(terms.begin() + 1, terms.end(), terms.front(), [](const Tensor& a, const Tensor& b) { return a + b; });
}

// Losses are sums of many terms: f32 at least.
Tensor wide(const Tensor& x) { return x.dtype() == DType::f64 ? x : x.to(DType::f32); }

Tensor mean_square_to(const Tensor& scores, double target) { return mean(square(wide(scores) - target)); }

std::vector<Tensor> learned(Module& module) {
  std::vector<Tensor> parameters = module.parameters();
  std::erase_if(parameters, [](const Tensor& parameter) { return !parameter.requires_grad(); });
  return parameters;
}

// In the originals' order, which is the order of their optimizers' states: the last discriminator's first.
std::vector<Tensor> learned(const NamedDiscriminators& discriminators) {
  std::vector<Tensor> all;
  for (auto named = discriminators.rbegin(); named != discriminators.rend(); ++named) {
    const std::vector<Tensor> own = learned(*named->second);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// Where the generator's parameters are.
Tensor like_of(Network& generator) { return generator.parameters().front(); }

NamedDiscriminators discriminators_like(const GanRecipe& recipe, const Tensor& like) {
  NamedDiscriminators list = make_discriminators(recipe);
  for (const auto& [name, discriminator] : list) {
    discriminator->to(like.dtype());
    discriminator->to(like.device());
  }
  return list;
}

MelSpectrogram on_device(MelSpectrogram mel, const Tensor& like) {
  mel.to(like.dtype() == DType::f64 ? DType::f64 : DType::f32);
  mel.to(like.device());
  return mel;
}

AdamWOptions options_of(const GanRecipe& recipe) {
  return {.learning_rate = recipe.learning_rate, .betas = {recipe.beta1, recipe.beta2}};
}

std::vector<Module*> modules_of(const NamedDiscriminators& discriminators) {
  std::vector<Module*> modules;
  for (const auto& [name, discriminator] : discriminators) modules.push_back(discriminator.get());
  return modules;
}

/// No gradients for the discriminators' weights in the scope. Those under weight norm are computed once.
class Frozen {
 public:
  explicit Frozen(const NamedDiscriminators& discriminators) : parameters_(learned(discriminators)) {
    set(false);
    held_.emplace(modules_of(discriminators));
  }
  ~Frozen() { set(true); }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  void set(bool value) {
    for (Tensor& parameter : parameters_) parameter.set_requires_grad(value);
  }
  std::vector<Tensor> parameters_;
  std::optional<HeldWeights> held_;
};

std::vector<Tensor> parts_of(const Tensor& audio, std::int64_t count) {
  std::vector<Tensor> parts;
  const std::int64_t rows = audio.size(0) / count;
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(count == 1 ? audio : audio.narrow(0, i * rows, rows));
  return parts;
}

}  // namespace

Tensor lsgan_discriminator_loss(const std::vector<FeatureMaps>& real, const std::vector<FeatureMaps>& generated) {
  std::vector<Tensor> terms;
  for (std::size_t i = 0; i < real.size(); ++i)
    terms.push_back(mean_square_to(real[i].back(), 1) + mean_square_to(generated[i].back(), 0));
  return total(terms);
}

Tensor lsgan_generator_loss(const std::vector<FeatureMaps>& generated) {
  std::vector<Tensor> terms;
  for (const FeatureMaps& maps : generated) terms.push_back(mean_square_to(maps.back(), 1));
  return total(terms);
}

Tensor feature_matching_loss(const std::vector<FeatureMaps>& real, const std::vector<FeatureMaps>& generated) {
  std::vector<Tensor> terms;
  for (std::size_t i = 0; i < real.size(); ++i)
    for (std::size_t k = 0; k < real[i].size(); ++k) {
      const DType dtype = generated[i][k].dtype();
      std::optional<AutocastGuard> wide_sum;  // losses of 16-bit maps are f32
      if (dtype == DType::f16 || dtype == DType::bf16) wide_sum.emplace(dtype);
      terms.push_back(l1_loss(generated[i][k], real[i][k].detach()));
    }
  return total(terms) * 2.0;
}

bool GanNumbers::is_finite() const {
  return std::isfinite(discriminator) && std::isfinite(generator()) && std::isfinite(generator_norm) &&
         std::all_of(discriminator_norms.begin(), discriminator_norms.end(), [](double norm) { return std::isfinite(norm); });
}

GanNumbers GanStep::read() const {
  const std::vector<double> values = numbers_.to_vector<double>();
  return {.discriminator = values[0],
          .adversarial = values[1],
          .features = values[2],
          .mel = values[3],
          .generator_norm = values[4],
          .discriminator_norms = {values.begin() + 5, values.end()}};
}

GanTraining::GanTraining(Network& generator, const GanRecipe& recipe)
    : generator_(generator),
      recipe_(recipe),
      discriminators_(discriminators_like(recipe, like_of(generator))),
      input_mel_(on_device(hifigan_mel(recipe.config), like_of(generator))),
      loss_mel_(on_device(gan_loss_mel(recipe.config), like_of(generator))),
      generator_optimizer_(learned(generator), options_of(recipe)),
      discriminator_optimizer_(learned(discriminators_), options_of(recipe)) {
  require<ShapeError>(generator.format().input == NetworkInput::mel && generator.format().samples_per_frame == recipe.hop_size,
                      kTraining, ": expected a generator of mels with ", recipe.hop_size, " samples (hop_size) a frame, got ",
                      generator.format().samples_per_frame);
}

void GanTraining::set_decays(std::int64_t times) {
  for (AdamW* optimizer : {&generator_optimizer_, &discriminator_optimizer_})
    ExponentialLR(*optimizer, {.gamma = recipe_.lr_decay}).load_state({.numbers = {{"steps", static_cast<double>(times)}}});
}

Tensor GanTraining::input_mel(const Tensor& audio) {
  const NoGradGuard no_grad;
  return input_mel_(audio.squeeze(1));
}

Tensor GanTraining::mel_distance(const Tensor& generated, const Tensor& audio) {
  const Tensor target = [&] {
    const NoGradGuard no_grad;
    return loss_mel_(audio.squeeze(1));
  }();
  return l1_loss(loss_mel_(wide(generated).squeeze(1)), target);
}

Tensor GanTraining::generate(const Tensor& audio, bool recomputes) {
  const Tensor mel = input_mel(audio);
  return wide(recomputes ? recompute(generator_, mel) : generator_(mel));
}

void GanTraining::run_backward(const Tensor& loss, bool is_last) const {
  if (before_backward_) before_backward_(is_last);
  loss.backward();
}

// The norm before clipping, f64.
Tensor GanTraining::clipped_norm(Module& module) const {
  const double most = recipe_.clip_norm > 0 ? recipe_.clip_norm : std::numeric_limits<double>::infinity();
  return clip_grad_norm(learned(module), most);
}

GanStep GanTraining::step(const Tensor& audio, const GanStepOptions& options) {
  require<ShapeError>(audio.rank() == 3 && audio.size(1) == 1 && audio.size(2) >= 1 && audio.size(2) % recipe_.hop_size == 0,
                      kTraining, ": expected audio (N, 1, L), L a multiple of hop_size=", recipe_.hop_size, ", got ",
                      audio.shape());
  require<ShapeError>(options.parts >= 1 && audio.size(0) >= 1 && audio.size(0) % options.parts == 0, kTraining,
                      ": expected a batch that ", options.parts, " parts divide, got ", audio.shape());
  const std::vector<Tensor> parts = parts_of(audio, options.parts);
  std::vector<Tensor> generated;
  for (const Tensor& part : parts) {
    const GradModeGuard recording(parts.size() == 1);  // of several parts, no graph waits for its turn
    generated.push_back(generate(part, options.recomputes));
  }
  const Tensor judged = learn_discriminators(parts, generated);
  const Tensor kept = parts.size() == 1 ? generated.front() : Tensor();
  generated.clear();
  const Tensor learned = learn_generator(parts, kept, options.recomputes);
  // loss | adversarial, features, mel, norm | norms
  return GanStep(cat({judged.narrow(0, 0, 1), learned, judged.narrow(0, 1, judged.size(0) - 1)}));
}

// Their loss and each one's gradient norm.
Tensor GanTraining::learn_discriminators(const std::vector<Tensor>& audio, const std::vector<Tensor>& generated) {
  discriminator_optimizer_.zero_grad();
  const double share = 1.0 / static_cast<double>(audio.size());
  std::vector<Tensor> losses;
  for (std::size_t i = 0; i < audio.size(); ++i) {
    const Tensor fake = generated[i].detach();
    const HeldWeights held(modules_of(discriminators_));
    const std::vector<Tensor> terms = networks::of_parts(fake, discriminators_.size(), [&](std::size_t k) {
      const FeaturesOfTwo maps = discriminators_[k].second->features_of_two(audio[i], fake);
      return lsgan_discriminator_loss(maps.first, maps.second);
    });
    losses.push_back(total(terms) * share);
    run_backward(losses.back(), i + 1 == audio.size());
  }
  const NoGradGuard no_grad;
  std::vector<Tensor> numbers{total(losses).detach().to(DType::f64)};
  for (const auto& [name, discriminator] : discriminators_) numbers.push_back(clipped_norm(*discriminator));
  discriminator_optimizer_.step();
  return stack(numbers);
}

// Its three losses and its gradient norm. `generated`, of a single part, is on the tape already.
Tensor GanTraining::learn_generator(const std::vector<Tensor>& audio, const Tensor& generated, bool recomputes) {
  generator_optimizer_.zero_grad();
  const Frozen frozen(discriminators_);
  const double share = 1.0 / static_cast<double>(audio.size());
  std::vector<Tensor> losses;
  for (std::size_t i = 0; i < audio.size(); ++i) {
    const Tensor fake = generated.defined() ? generated : generate(audio[i], recomputes);
    losses.push_back(generator_losses(audio[i], fake, i + 1 == audio.size(), share));
  }
  const NoGradGuard no_grad;
  const Tensor norm = clipped_norm(generator_);
  generator_optimizer_.step();
  return cat({total(losses).to(DType::f64), norm.reshape({1})});
}

// One part's losses, by its share of the batch, behind their backward pass: (adversarial, features, mel).
Tensor GanTraining::generator_losses(const Tensor& audio, const Tensor& generated, bool is_last, double share) {
  struct Terms {
    Tensor adversarial, features;
  };
  std::vector<Tensor> adversarial, features;
  for (const Terms& terms : networks::of_parts(generated, discriminators_.size(), [&](std::size_t k) -> Terms {
         const std::vector<FeatureMaps> real = discriminators_[k].second->features(audio);
         const std::vector<FeatureMaps> fake = discriminators_[k].second->features(generated);
         return {lsgan_generator_loss(fake), feature_matching_loss(real, fake)};
       })) {
    adversarial.push_back(terms.adversarial);
    features.push_back(terms.features);
  }
  const Tensor losses =
      stack({total(adversarial), total(features), mel_distance(generated, audio) * recipe_.mel_weight}) * share;
  run_backward(sum(losses), is_last);
  return losses.detach();
}

}  // namespace polyphase
