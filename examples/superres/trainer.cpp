#include "trainer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/no_grad.hpp"
#include "layers/losses.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "optim/clip.hpp"

namespace superres {
namespace {

constexpr double kEnergyFloor = 1e-8;  // a digitally silent window must not dominate the batch
constexpr double kClipNorm = 5;
constexpr double kAverageDecay = 0.99;
constexpr std::int64_t kWarmupSteps = 50;

std::vector<pp::Tensor> learned(UpsamplingNetwork& network) {
  std::vector<pp::Tensor> parameters = network.parameters();
  std::erase_if(parameters, [](const pp::Tensor& parameter) { return !parameter.requires_grad(); });
  return parameters;
}

UpsamplingNetwork make_network(const ModelOptions& options, std::uint64_t seed) {
  pp::Generator generator(seed);
  const pp::GeneratorGuard guard(generator);
  return UpsamplingNetwork(options);
}

pp::ExponentialMovingAverage make_average(UpsamplingNetwork& network) {
  return pp::ExponentialMovingAverage(learned(network), {.decay = kAverageDecay, .ramp = true});
}

const TrainSettings& validated(const TrainSettings& settings, const ModelOptions& model) {
  validate(settings, model);
  return settings;
}

}  // namespace

pp::Tensor training_loss(const pp::Tensor& output, const pp::Tensor& target, double spectral_weight) {
  const pp::Tensor energy = pp::mean(pp::square(output - target), {1, 2});  // (N)
  const pp::Tensor waveform = pp::mean(pp::log(energy + kEnergyFloor)) * 0.5;
  if (spectral_weight == 0) return waveform;
  static const pp::MultiResolutionStftOptions kSpectra{.resolutions = {{512, 128, 512}, {1024, 256, 1024}, {2048, 512, 2048}},
                                                       .spectral_convergence_weight = 0,
                                                       .epsilon = 1e-8};
  return waveform + pp::multi_resolution_stft_loss(output.squeeze(1), target.squeeze(1), kSpectra) * spectral_weight;
}

Trainer::Trainer(const ModelOptions& model, const TrainSettings& settings)
    : options_(model),
      settings_(validated(settings, model)),
      network_(make_network(model, settings.seed)),
      optimizer_(learned(network_), {.learning_rate = settings.learning_rate, .betas = {0.9, 0.99}}),
      average_(make_average(network_)) {
  make_schedule();
}

Trainer::Trainer(const pp::Checkpoint& checkpoint) : Trainer{options_of(checkpoint), train_settings_from(checkpoint.texts)} {
  network_.load_state_dict(checkpoint.model);
  optimizer_.load_state(checkpoint.state("optimizer"));
  average_.load_state(checkpoint.state("average"));
  schedule_->load_state(checkpoint.state("schedule"));
}

void Trainer::make_schedule() {
  schedule_.emplace(optimizer_, pp::WarmupLR::Options{.steps = kWarmupSteps},
                    pp::CosineAnnealingLR(optimizer_, {.steps = std::max<std::int64_t>(settings_.steps - kWarmupSteps, 1)}));
}

void Trainer::set_total_steps(std::int64_t steps) {
  const pp::OptimizerState state = schedule_->state();
  settings_.steps = steps;
  make_schedule();
  schedule_->load_state(state);
}

LoaderOptions Trainer::loader_options() const {
  const Context context = network_.context();
  return {.batch = settings_.batch,
          .window = settings_.window,
          .context_left = context.left,
          .context_right = context.right,
          .factor = options_.factor,
          .seed = settings_.seed};
}

StepResult Trainer::step(const TensorBatch& batch) {
  const pp::Tensor& target = batch.high;
  const std::int64_t skip = network_.context().left * options_.factor;
  const pp::Tensor output = network_(batch.low).narrow(2, skip, settings_.window);
  const pp::Tensor loss = training_loss(output, target, settings_.spectral_weight);
  optimizer_.zero_grad();
  loss.backward();

  // The numbers of a step are copied to the host together, because each copy waits for the device.
  const StepResult result = [&] {
    const pp::NoGradGuard no_grad;
    const pp::Tensor noise = pp::sum(pp::square(output.detach() - target)), energy = pp::sum(pp::square(target));
    const pp::Tensor norm = pp::clip_grad_norm(learned(network_), kClipNorm).to(pp::DType::f32);
    const std::vector<float> numbers = pp::stack({loss.detach(), noise, energy, norm}).to_vector<float>();
    return StepResult{
        .loss = numbers[0], .snr = 10 * std::log10(static_cast<double>(numbers[2]) / numbers[1]), .gradient_norm = numbers[3]};
  }();
  pp::require<Diverged>(std::isfinite(result.loss) && std::isfinite(result.gradient_norm), "train: at step ", steps() + 1,
                        " the loss is ", result.loss, " and the gradient's norm ", result.gradient_norm,
                        ": try a smaller --lr than ", settings_.learning_rate);
  optimizer_.step();
  schedule_->step();
  average_.update();
  return result;
}

pp::Checkpoint Trainer::checkpoint() {
  pp::Checkpoint checkpoint;
  checkpoint.model = network_.state_dict();
  checkpoint.states = {{"optimizer", optimizer_.state()}, {"average", average_.state()}, {"schedule", schedule_->state()}};
  checkpoint.step = steps();
  checkpoint.texts = to_texts(options_);
  checkpoint.texts.merge(to_texts(settings_));
  return require_finite(std::move(checkpoint), pp::concat("a smaller --lr than ", settings_.learning_rate));
}

pp::Checkpoint Trainer::averaged() {
  pp::Checkpoint checkpoint;
  checkpoint.step = steps();
  checkpoint.texts = to_texts(options_);
  with_average([&] {
    for (const auto& [name, tensor] : network_.state_dict()) checkpoint.model.emplace_back(name, tensor.clone());
  });
  return require_finite(std::move(checkpoint), pp::concat("a smaller --lr than ", settings_.learning_rate));
}

UpsamplingNetwork load_network(const std::string& path) {
  const pp::Checkpoint checkpoint = load_finite_checkpoint(path);
  UpsamplingNetwork network(options_of(checkpoint));
  network.load_state_dict(checkpoint.model);
  if (checkpoint.states.contains("average")) {
    pp::ExponentialMovingAverage average = make_average(network);
    average.load_state(checkpoint.state("average"));
    average.apply();  // never restored, so these are the weights from now on
  }
  network.eval();
  return network;
}

}  // namespace superres
