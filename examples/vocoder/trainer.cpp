#include "trainer.hpp"

#include <utility>

#include "autograd/autocast.hpp"
#include "conv/algorithm.hpp"
#include "io/safetensors.hpp"
#include "layers/weight_norm.hpp"
#include "networks/registry.hpp"
#include "published.hpp"

namespace vocoder {
namespace {

constexpr const char* kGenerator = "generator.";
constexpr std::int64_t kEagerSteps = 3;  // before one is recorded: plans, optimizer states, NCCL's connections

pp::NamedTensors with_prefix(const std::string& prefix, const pp::NamedTensors& tensors) {
  pp::NamedTensors named;
  for (const auto& [name, tensor] : tensors) named.emplace_back(prefix + name, tensor);
  return named;
}

pp::NamedTensors without_prefix(const std::string& prefix, const pp::NamedTensors& tensors) {
  pp::NamedTensors own;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) own.emplace_back(name.substr(prefix.size()), tensor);
  return own;
}

/// While it has scopes, gradients are added and not sent.
struct Accumulating {
  std::vector<std::unique_ptr<pp::distributed::DataParallel::NoSync>> scopes;
};

}  // namespace

Trainer::Trainer(const TrainSettings& settings) : settings_(settings) {
  const pp::GanRecipe recipe = pp::GanRecipe::parse(settings.config);
  pp::Generator random(settings.seed);
  const pp::GeneratorGuard guard(random);
  generator_ = pp::make_network(recipe.network, recipe.config);
  pp::weight_norm(*generator_);
  gan_.emplace(*generator_, recipe);
  if (settings.average_decay > 0)
    average_.emplace(generator_->parameters(), pp::EmaOptions{.decay = settings.average_decay, .ramp = true});
}

Trainer::Trainer(const pp::Checkpoint& checkpoint) : Trainer(train_settings_from(checkpoint.texts)) {
  generator_->load_state_dict(without_prefix(kGenerator, checkpoint.model));
  for (const auto& [name, discriminator] : gan_->discriminators())
    discriminator->load_state_dict(without_prefix(name + ".", checkpoint.model));
  gan_->generator_optimizer().load_state(checkpoint.state("optim_g"));
  gan_->discriminator_optimizer().load_state(checkpoint.state("optim_d"));
  if (average_) average_->load_state(checkpoint.state("average"));
  steps_ = checkpoint.step;
}

void Trainer::load_published(const std::string& generator, const std::string& discriminators) {
  if (!generator.empty()) load_generator(*generator_, generator);
  if (!discriminators.empty()) {
    const PublishedRun run = load_discriminators(*gan_, discriminators);
    settings_.decays_before = gan_->recipe().network == "bigvgan" ? run.steps : run.epochs;
  }
  if (average_) average_.emplace(generator_->parameters(), pp::EmaOptions{.decay = settings_.average_decay, .ramp = true});
}

void Trainer::distribute(const pp::distributed::Group& group) {
  group_ = group;
  std::string settings;
  for (const auto& [name, text] : to_texts(settings_)) settings += name + " " + text + "\n";
  parallel_.emplace_back(group, *generator_, pp::distributed::DataParallelOptions{.settings = settings});
  for (const auto& [name, discriminator] : gan_->discriminators()) parallel_.emplace_back(group, *discriminator);
  gan_->on_backward([this, waiting = std::make_shared<Accumulating>()](bool is_last) {
    waiting->scopes.clear();
    for (pp::distributed::DataParallel& parallel : parallel_)
      if (!is_last) waiting->scopes.push_back(std::make_unique<pp::distributed::DataParallel::NoSync>(parallel));
  });
}

// A function of the step alone, so that a resumed run has the same rate.
void Trainer::decay() {
  const bool by_steps = gan_->recipe().network == "bigvgan";
  gan_->set_decays(settings_.decays_before + (by_steps ? steps_ : steps_ / steps_per_epoch_));
}

void Trainer::record_steps() {
  const pp::Device device = generator_->parameters().front().device();
  pp::require<pp::Error>(device.is_cuda(), "train: expected a GPU for --graph, got ", device);
  records_ = true;
}

// The guards are made in the step: inside a recording they keep weights that were cast there.
pp::GanStep Trainer::compute(const pp::Tensor& audio) {
  std::optional<pp::PrecisionGuard> precision;
  if (settings_.precision == "tf32") precision.emplace(pp::Precision::tf32);
  std::optional<pp::AutocastGuard> autocast;
  if (settings_.precision == "bf16") autocast.emplace(pp::DType::bf16);
  return gan_->step(audio, {.parts = settings_.parts, .recomputes = settings_.recomputes});
}

pp::GanStep Trainer::replay(const pp::Tensor& audio) {
  if (!graph_) {
    audio_ = audio.clone();
    graph_.emplace(pp::cuda::capture([this] { recorded_.emplace(compute(audio_)); }, audio.device().index));
  }
  pp::require<pp::ShapeError>(audio.shape() == audio_.shape(), "train: expected audio of the recorded step's shape ",
                              audio_.shape(), ", got ", audio.shape());
  audio_.copy_(audio);
  graph_->replay();
  return *recorded_;
}

pp::GanNumbers Trainer::step(const pp::Tensor& audio) {
  decay();
  const pp::GanStep result = records_ && eager_steps_ >= kEagerSteps ? replay(audio) : compute(audio);
  ++eager_steps_;
  if (group_ && group_->world() > 1)  // losses are of this process' rows
    group_->communicator().all_reduce(result.numbers(), pp::distributed::Combine::average, "the losses").wait();
  const pp::GanNumbers numbers = result.read();
  ++steps_;
  pp::require<Diverged>(numbers.is_finite(), "train: at step ", steps_, " the discriminators' loss is ", numbers.discriminator,
                        ", the generator's ", numbers.generator(), " and its gradient's norm ", numbers.generator_norm,
                        ": try a smaller learning_rate or a clip_grad_norm in the configuration");
  if (average_) average_->update();
  return numbers;
}

pp::NamedTensors Trainer::model_state() {
  pp::NamedTensors all = with_prefix(kGenerator, generator_->state_dict());
  for (auto& [name, tensor] : discriminator_state(*gan_)) all.emplace_back(name, tensor);
  return all;
}

pp::Checkpoint Trainer::checkpoint() {
  pp::Checkpoint checkpoint;
  checkpoint.model = model_state();
  checkpoint.states = {{"optim_g", gan_->generator_optimizer().state()}, {"optim_d", gan_->discriminator_optimizer().state()}};
  if (average_) checkpoint.states["average"] = average_->state();
  checkpoint.step = steps_;
  checkpoint.texts = to_texts(settings_);
  return require_finite(std::move(checkpoint), pp::concat("a smaller learning_rate than ", gan_->learning_rate()));
}

void Trainer::save_generator(const std::string& path) {
  const pp::GanRecipe& recipe = gan_->recipe();
  with_average([&] {
    pp::save_safetensors(path, generator_->state_dict(), {{"network", recipe.network}, {"config", recipe.config}});
  });
}

}  // namespace vocoder
