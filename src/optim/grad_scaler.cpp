#include "optim/grad_scaler.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "ops/elementwise.hpp"
#include "optim/gradients.hpp"
#include "optim/state_reader.hpp"

namespace polyphase {
namespace {

constexpr const char* kGradScaler = "GradScaler";

std::size_t place(LossScaleField field) { return static_cast<std::size_t>(field); }

void require_scale(double scale) {
  require<ShapeError>(std::isfinite(scale) && scale > 0, kGradScaler, ": expected a scale > 0, got ", scale);
}

void require_not_recording(Device device) {
  require<DeviceError>(!device.is_cuda() || !cuda::capturing(), kGradScaler,
                       ": every replay would create its state again; run one step before cuda::capture");
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), start_{options.initial_scale, 0, 0} {
  require_scale(options.initial_scale);
  require<ShapeError>(std::isfinite(options.growth_factor) && options.growth_factor > 1, kGradScaler,
                      ": expected growth_factor > 1, got ", options.growth_factor);
  require<ShapeError>(options.backoff_factor > 0 && options.backoff_factor < 1, kGradScaler,
                      ": expected backoff_factor in (0, 1), got ", options.backoff_factor);
  require<ShapeError>(options.growth_interval >= 1, kGradScaler, ": expected growth_interval >= 1, got ",
                      options.growth_interval);
}

void GradScaler::make_state(Device device) {
  require_not_recording(device);
  const NoGradGuard no_grad;
  const Tensor state = Tensor::empty({static_cast<std::int64_t>(start_.size())}, {.dtype = DType::f64, .device = device});
  for (std::size_t i = 0; i < start_.size(); ++i) state.select(0, static_cast<std::int64_t>(i)).fill_(start_[i]);
  state_ = state;
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  if (!state_.defined()) make_state(loss.device());
  const Tensor scale = state_.select(0, static_cast<std::int64_t>(LossScaleField::scale));
  // A copy: update() writes to the state, and the tape keeps this tensor.
  return mul(loss, loss.dtype() == DType::f64 ? scale.clone() : scale.to(loss.dtype()));
}

GradScaler::Entry& GradScaler::entry_of(const Optimizer& optimizer) {
  const auto is_its = [&](const Entry& entry) { return entry.optimizer.lock() == optimizer.identity(); };
  const auto known = std::find_if(entries_.begin(), entries_.end(), is_its);
  if (known != entries_.end()) return *known;
  require<Error>(entries_.size() < Backend::kMaxFound, kGradScaler, ": expected at most ", Backend::kMaxFound, " optimizers");
  require_not_recording(state_.device());
  return entries_.emplace_back(
      Entry{optimizer.identity(), Tensor::zeros({}, {.dtype = DType::f64, .device = state_.device()})});
}

void GradScaler::unscale(Optimizer& optimizer) {
  if (options_.enabled) unscale(optimizer, "GradScaler::unscale");
}

void GradScaler::unscale(Optimizer& optimizer, const char* operation) {
  require<Error>(state_.defined(), operation, ": expected scale() of a loss first");
  Entry& entry = entry_of(optimizer);
  require<Error>(entry.stage != Stage::unscaled, operation, ": the gradients are unscaled already; call update() first");
  require<Error>(entry.stage != Stage::stepped, operation, ": the optimizer has stepped already; call update() first");
  const NoGradGuard no_grad;
  const std::vector<Tensor> gradients = contiguous_gradients(operation, optimizer.parameters());
  require<Error>(!gradients.empty(), operation, ": no parameter of the optimizer has a gradient");
  require<DeviceError>(gradients.front().device() == state_.device(), operation, ": expected gradients on the loss's device ",
                       state_.device(), ", got ", gradients.front().device());
  for (const Tensor& gradient : gradients)
    require<DTypeError>(gradient.dtype() != DType::f16, operation,
                        ": expected gradients of f32 (parameters of f32 under an AutocastGuard), got f16");
  const Tensor scale = state_.select(0, static_cast<std::int64_t>(LossScaleField::scale));
  backend_of(state_.device()).unscale(gradients, scale, entry.found);
  if (options_.agree) options_.agree(entry.found);
  for (const Tensor& gradient : gradients) gradient.storage().bump_version();
  entry.stage = Stage::unscaled;
}

void GradScaler::step(Optimizer& optimizer) {
  static constexpr const char* kStep = "GradScaler::step";
  if (!options_.enabled) return optimizer.step();
  require<Error>(state_.defined(), kStep, ": expected scale() of a loss first");
  if (entry_of(optimizer).stage != Stage::unscaled) unscale(optimizer, kStep);
  Entry& entry = entry_of(optimizer);
  optimizer.step(entry.found);
  entry.stage = Stage::stepped;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  std::vector<Tensor> found;
  for (Entry& entry : entries_) {
    if (entry.stage != Stage::ready) found.push_back(entry.found);
  }
  require<Error>(!found.empty(), "GradScaler::update: nothing was unscaled since the last update");
  backend_of(state_.device())
      .update_loss_scale(
          state_, found,
          {.growth = options_.growth_factor, .backoff = options_.backoff_factor, .interval = options_.growth_interval});
  state_.storage().bump_version();
  std::erase_if(entries_, [](const Entry& entry) { return entry.optimizer.expired(); });
  for (Entry& entry : entries_) entry.stage = Stage::ready;
}

std::vector<double> GradScaler::values() const { return state_.defined() ? state_.to_vector<double>() : start_; }

double GradScaler::scale() const { return options_.enabled ? values()[place(LossScaleField::scale)] : 1; }
std::int64_t GradScaler::growth_tracker() const {
  return static_cast<std::int64_t>(values()[place(LossScaleField::growth_tracker)]);
}
std::int64_t GradScaler::skipped() const { return static_cast<std::int64_t>(values()[place(LossScaleField::skipped)]); }

OptimizerState GradScaler::state() const {
  const std::vector<double> now = values();
  OptimizerState state;
  state.numbers.emplace_back("scale", now[place(LossScaleField::scale)]);
  state.numbers.emplace_back("growth_tracker", now[place(LossScaleField::growth_tracker)]);
  state.numbers.emplace_back("skipped", now[place(LossScaleField::skipped)]);
  return state;
}

void GradScaler::load_state(const OptimizerState& state) {
  const StateReader reader(kGradScaler, state);
  const double scale = reader.number("scale");
  require_scale(scale);
  const auto growth_tracker = static_cast<double>(reader.count("growth_tracker"));
  const auto skipped = static_cast<double>(reader.count("skipped"));
  reader.expect_size(0, 3);
  start_ = {scale, growth_tracker, skipped};
  // In place: recorded steps hold the address.
  if (!state_.defined()) return;
  for (std::size_t i = 0; i < start_.size(); ++i) state_.select(0, static_cast<std::int64_t>(i)).fill_(start_[i]);
}

}  // namespace polyphase
