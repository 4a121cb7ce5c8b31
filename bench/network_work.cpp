#include "network_work.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "layers/losses.hpp"
#include "layers/streaming/stream.hpp"
#include "layers/weight_norm.hpp"
#include "networks/gan/training.hpp"
#include "networks/registry.hpp"
#include "optim/adam.hpp"
#include "tensor/random.hpp"

namespace polyphase::bench {
namespace {

std::string config_of(const NetworkCase& what) {
  const std::string path = concat(NETWORK_CONFIGS, "/", what.config.empty() ? what.name : what.config, ".json");
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  require<Error>(file.good() || file.eof(), "cannot read ", path);
  require<Error>(!text.empty(), "cannot read ", path);
  return text;
}

std::int64_t rate_of(const NetworkFormat& format) {
  constexpr std::int64_t kUsualRate = 24000;  // of networks whose configuration does not say it
  return format.sampling_rate > 0 ? format.sampling_rate : kUsualRate;
}

std::int64_t frames_of(const NetworkCase& what, const NetworkFormat& format) {
  constexpr std::int64_t kSeconds = 10;
  return what.frames > 0 ? what.frames : kSeconds * rate_of(format) / format.samples_per_frame;
}

Tensor input_of(const NetworkCase& what, const NetworkFormat& format) {
  const Shape shape{what.N, format.rows, frames_of(what, format)};
  if (format.input != NetworkInput::codes) return Tensor::randn(shape);
  const std::vector<float> numbers = Tensor::rand(shape).to_vector<float>();
  std::vector<std::int64_t> codes;
  for (const float number : numbers)
    codes.push_back(std::min<std::int64_t>(static_cast<std::int64_t>(number * static_cast<float>(what.codebook_size)),
                                           what.codebook_size - 1));
  return Tensor::from_vector(codes, shape);
}

}  // namespace

NetworkPrecision network_precision(const std::string& name) {
  if (name == "fp32") return {};
  if (name == "tf32") return {.precision = Precision::tf32};
  if (name == "ieee") return {.precision = Precision::ieee};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64})
    if (name == name_of(dtype)) return {.dtype = dtype};
  throw Error(concat("--precisions: expected fp32, tf32, ieee, f16, bf16 or f64, got ", name));
}

NetworkWork::NetworkWork(const NetworkCase& what, const NetworkPrecision& precision, Device device)
    : what_(what), precision_(precision) {
  manual_seed(1);
  net_ = make_network(what.network, config_of(what));
  input_ = input_of(what, net_->format());
  if (is_training(what.run)) {
    const std::int64_t samples = input_.size(2) * net_->format().samples_per_frame;
    target_ = Tensor::uniform({what.N, net_->format().audio_channels, samples}, -0.5, 0.5).to(device);
    weight_norm(*net_);
  } else {
    net_->to(precision.dtype);
    if (is_floating_point(input_.dtype())) input_ = input_.to(precision.dtype);
    net_->eval();
  }
  net_->to(device);
  input_ = input_.to(device);
  if (what.run == NetworkRun::step)
    optimizer_ = std::make_unique<AdamW>(net_->parameters(), AdamWOptions{.learning_rate = 2e-4, .betas = {0.8, 0.99}});
  if (what.run == NetworkRun::stream) begin_stream();
  if (what.run == NetworkRun::gan) {
    input_ = target_;  // the mels are made of it
    gan_ = std::make_unique<GanTraining>(*net_, GanRecipe::parse(config_of(what)));
  }
}

NetworkWork::~NetworkWork() = default;

void NetworkWork::begin_stream() {
  constexpr std::int64_t kPast = 128;  // frames: more than any latency here, and attention's contexts are full
  const PrecisionGuard precision(precision_.precision);
  NetworkCase past = what_;
  past.frames = kPast;
  Tensor input = input_of(past, net_->format());
  if (is_floating_point(input.dtype())) input = input.to(precision_.dtype);
  stream_ = std::make_unique<Stream>(*net_);
  static_cast<void>(stream_->push(input.to(input_.device())));
}

void NetworkWork::record_stream() {
  stream_->record_pushes();
  for (int push = 0; push < 8 && !stream_->has_replayed(); ++push) run();
  require<Error>(stream_->has_replayed(), "bench/networks: expected a network whose pushes can be recorded");
}

void NetworkWork::run() {
  const PrecisionGuard precision(precision_.precision);
  if (what_.run == NetworkRun::step) return run_step();
  if (what_.run == NetworkRun::gan) return run_gan();
  const NoGradGuard no_grad;
  output_ = what_.run == NetworkRun::stream ? stream_->push(input_) : (*net_)(input_);
}

void NetworkWork::run_step() {
  std::optional<AutocastGuard> autocast;
  if (precision_.dtype == DType::f16 || precision_.dtype == DType::bf16) autocast.emplace(precision_.dtype);
  const Tensor loss = mse_loss((*net_)(input_).to(DType::f32), target_);
  autocast.reset();
  optimizer_->zero_grad();
  loss.backward();
  optimizer_->step();
  const bool is_first = !first_loss_;
  output_ = loss.detach();
  if (is_first) first_loss_ = output_.item();
}

void NetworkWork::run_gan() {
  std::optional<AutocastGuard> autocast;
  if (precision_.dtype == DType::bf16) autocast.emplace(precision_.dtype);
  constexpr std::int64_t kMel = 3;  // GanNumbers::mel
  output_ = gan_->step(input_).numbers().narrow(0, kMel, 1);
  if (!first_loss_) first_loss_ = output_.item();
}

double NetworkWork::seconds() const {
  const NetworkFormat& format = net_->format();
  const std::int64_t samples = input_.size(2) * (what_.run == NetworkRun::gan ? 1 : format.samples_per_frame);
  return static_cast<double>(input_.size(0) * samples) / static_cast<double>(rate_of(format));
}

std::string NetworkWork::problem() const {
  const std::vector<float> values = result();
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
    return "the result is not finite";
  if (is_training(what_.run))
    return values.front() < *first_loss_ ? ""
                                         : concat("the loss has not fallen from ", *first_loss_, ", it is ", values.front());
  const std::int64_t samples = input_.size(2) * net_->format().samples_per_frame, off = std::abs(output_.size(-1) - samples);
  // A network may drop some samples at the ends.
  if (off > (what_.run == NetworkRun::stream ? 0 : net_->format().samples_per_frame))
    return concat("expected ", samples, " samples, got ", output_.shape());
  return "";
}

std::vector<float> NetworkWork::result() const { return output_.to(DType::f32).to_vector<float>(); }

}  // namespace polyphase::bench
