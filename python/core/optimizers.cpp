// Optimizers, schedules, averages of weights, loss scaling, clipping.

#include "casters.hpp"
#include "core.hpp"
#include "optim/adam.hpp"
#include "optim/clip.hpp"
#include "optim/ema.hpp"
#include "optim/grad_scaler.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedulers.hpp"
#include "optim/sgd.hpp"
#include "states.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

/// Parameters as tensors, or as groups with settings of their own.
std::vector<ParameterGroup> groups_of(nb::handle parameters) {
  std::vector<Tensor> tensors;
  std::vector<ParameterGroup> groups;
  if (nb::try_cast(parameters, tensors)) return {{.parameters = std::move(tensors)}};
  if (nb::try_cast(parameters, groups)) return groups;
  throw nb::type_error("expected parameters as a list of tensors or of ParameterGroups");
}

constexpr const char* kParametersDoc =
    "parameters: a list of tensors or of ParameterGroups. Raises ShapeError naming a setting that is out of range.";

/// state() and load_state() of an optimizer, a scheduler, averages or a scaler.
template <class Owner, class Class>
void bind_state(Class& bound) {
  bound
      .def(
          "state", [](const Owner& self) { return to_python(self.state()); },
          nb::sig("def state(self) -> dict[str, dict[str, typing.Any]]"),
          "{\"tensors\": {...}, \"numbers\": {...}}: what a checkpoint saves. Waits for the device.")
      .def(
          "load_state", [](Owner& self, const nb::dict& state) { self.load_state(from_python(state)); }, "state"_a,
          "Restores the result of state(). Raises Error naming the entry that does not fit; then nothing has changed.");
}

void bind_optimizer(nb::module_& module) {
  nb::class_<ParameterGroup>(module, "ParameterGroup", "Parameters with settings of their own; None: the optimizer's.")
      .def(
          "__init__",
          [](ParameterGroup* self, std::vector<Tensor> parameters, std::optional<double> learning_rate,
             std::optional<double> weight_decay) {
            new (self) ParameterGroup{std::move(parameters), learning_rate, weight_decay};
          },
          "parameters"_a, "learning_rate"_a = nb::none(), "weight_decay"_a = nb::none());
  auto optimizer = nb::class_<Optimizer>(module, "Optimizer", "Updates parameters from their gradients.");
  optimizer
      .def("step", static_cast<void (Optimizer::*)()>(&Optimizer::step), kUnlocked,
           "One update of every parameter that has a gradient. Never waits for the device.")
      .def("zero_grad", &Optimizer::zero_grad, "Drops all gradients.")
      .def_prop_ro("steps", &Optimizer::steps, "Steps so far that found a gradient. Waits for the device.")
      .def("parameters", &Optimizer::parameters, "All parameters, group after group.")
      .def_prop_ro("group_count", &Optimizer::group_count, "The number of groups.")
      .def("learning_rate", &Optimizer::learning_rate, "group"_a = 0, "Raises ShapeError if there is no such group.")
      .def("initial_learning_rate", &Optimizer::initial_learning_rate, "group"_a = 0, "The rate from which schedules start.")
      .def("weight_decay", &Optimizer::weight_decay, "group"_a = 0, "The weight decay of a group.")
      .def(
          "set_learning_rate",
          [](Optimizer& self, double value, std::optional<std::size_t> group) {
            if (group) {
              self.set_learning_rate(value, *group);
            } else {
              self.set_learning_rate(value);
            }
          },
          "value"_a, "group"_a = nb::none(),
          "Sets the rate of one group, or of all. Raises ShapeError unless finite and >= 0.");
  bind_state<Optimizer>(optimizer);
}

template <class Bound, class Options>
void bind_adam(nb::module_& module, const char* name, double weight_decay, const char* doc) {
  nb::class_<Bound, Optimizer>(module, name, doc)
      .def(
          "__init__",
          [](Bound* self, nb::handle parameters, double learning_rate, const std::pair<double, double>& betas, double epsilon,
             double decay) {
            new (self) Bound(groups_of(parameters), Options{learning_rate, {betas.first, betas.second}, epsilon, decay});
          },
          "parameters"_a, "learning_rate"_a = 1e-3, "betas"_a = nb::make_tuple(0.9, 0.999), "epsilon"_a = 1e-8,
          "weight_decay"_a = weight_decay, kParametersDoc);
}

void bind_optimizer_kinds(nb::module_& module) {
  nb::class_<SGD, Optimizer>(module, "SGD", "Stochastic gradient descent with momentum, PyTorch's.")
      .def(
          "__init__",
          [](SGD* self, nb::handle parameters, double learning_rate, double momentum, double dampening, double weight_decay,
             bool nesterov) {
            new (self) SGD(groups_of(parameters), SgdOptions{learning_rate, momentum, dampening, weight_decay, nesterov});
          },
          "parameters"_a, "learning_rate"_a = 1e-3, "momentum"_a = 0.0, "dampening"_a = 0.0, "weight_decay"_a = 0.0,
          "nesterov"_a = false, kParametersDoc);
  bind_adam<Adam, AdamOptions>(module, "Adam", AdamOptions{}.weight_decay, "Adam, the weight decay added to the gradient.");
  bind_adam<AdamW, AdamWOptions>(module, "AdamW", AdamWOptions{}.weight_decay,
                                 "Adam, the weight decay subtracted from the weight.");
}

void bind_schedules(nb::module_& module) {
  auto scheduler = nb::class_<Scheduler>(module, "Scheduler", "Sets an optimizer's learning rates by the number of steps.");
  scheduler.def("step", &Scheduler::step, "Counts one step and sets every group's rate. Call it after Optimizer.step().")
      .def_prop_ro("steps", &Scheduler::steps, "Steps so far.")
      .def("learning_rate", &Scheduler::learning_rate, "initial"_a, "step"_a, "The rate after so many steps.");
  bind_state<Scheduler>(scheduler);
  nb::class_<StepLR, Scheduler>(module, "StepLR", "initial*gamma^floor(step/step_size).")
      .def(
          "__init__",
          [](StepLR* self, Optimizer& optimizer, std::int64_t step_size, double gamma) {
            new (self) StepLR(optimizer, {step_size, gamma});
          },
          "optimizer"_a, "step_size"_a, "gamma"_a = 0.1, nb::keep_alive<1, 2>());
  nb::class_<ExponentialLR, Scheduler>(module, "ExponentialLR", "initial*gamma^step.")
      .def(
          "__init__",
          [](ExponentialLR* self, Optimizer& optimizer, double gamma) { new (self) ExponentialLR(optimizer, {gamma}); },
          "optimizer"_a, "gamma"_a, nb::keep_alive<1, 2>());
  nb::class_<CosineAnnealingLR, Scheduler>(module, "CosineAnnealingLR",
                                           "minimum + (initial - minimum)*(1 + cos(pi*step/steps))/2, then the minimum.")
      .def(
          "__init__",
          [](CosineAnnealingLR* self, Optimizer& optimizer, std::int64_t steps, double minimum) {
            new (self) CosineAnnealingLR(optimizer, {steps, minimum});
          },
          "optimizer"_a, "steps"_a, "minimum"_a = 0.0, nb::keep_alive<1, 2>());
  nb::class_<WarmupLR, Scheduler>(module, "WarmupLR",
                                  "initial*(step + 1)/steps for the first steps, then the initial rate or another schedule.")
      .def(
          "__init__",
          [](WarmupLR* self, Optimizer& optimizer, std::int64_t steps, const Scheduler* then) {
            const WarmupLR::Options options{steps};
            if (const auto* step = dynamic_cast<const StepLR*>(then)) {
              new (self) WarmupLR(optimizer, options, *step);
            } else if (const auto* exponential = dynamic_cast<const ExponentialLR*>(then)) {
              new (self) WarmupLR(optimizer, options, *exponential);
            } else if (const auto* cosine = dynamic_cast<const CosineAnnealingLR*>(then)) {
              new (self) WarmupLR(optimizer, options, *cosine);
            } else if (then == nullptr) {
              new (self) WarmupLR(optimizer, options);
            } else {
              throw NotImplemented("WarmupLR: expected a StepLR, ExponentialLR or CosineAnnealingLR to follow");
            }
          },
          "optimizer"_a, "steps"_a, "then"_a.none() = nb::none(), nb::keep_alive<1, 2>());
}

void bind_training(nb::module_& module) {
  module.def(
      "clip_grad_norm",
      [](const std::vector<Tensor>& parameters, double max_norm, bool error_if_nonfinite) {
        return clip_grad_norm(parameters, max_norm, {error_if_nonfinite});
      },
      "parameters"_a, "max_norm"_a, "error_if_nonfinite"_a = false, kUnlocked,
      "Scales all gradients by max_norm/(norm + 1e-6) if that is below 1. Returns the norm before, () f64. Raises ShapeError "
      "unless\n"
      "max_norm > 0, DeviceError unless all gradients are on one device.");
  auto average = nb::class_<ExponentialMovingAverage>(module, "ExponentialMovingAverage", "A moving average of the weights.");
  average
      .def(
          "__init__",
          [](ExponentialMovingAverage* self, std::vector<Tensor> parameters, double decay, bool ramp) {
            new (self) ExponentialMovingAverage(std::move(parameters), {decay, ramp});
          },
          "parameters"_a, "decay"_a = 0.999, "ramp"_a = false)
      .def("update", &ExponentialMovingAverage::update, kUnlocked,
           "Adds the weights to the average. Raises Error while applied.")
      .def("apply", &ExponentialMovingAverage::apply, kUnlocked,
           "Exchanges weights and averages. Raises Error if applied already.")
      .def("restore", &ExponentialMovingAverage::restore, kUnlocked, "Exchanges them back. Raises Error unless applied.")
      .def_prop_ro("is_applied", &ExponentialMovingAverage::is_applied, "Whether the weights are the averages.")
      .def_prop_ro("updates", &ExponentialMovingAverage::updates, "The number of updates. Waits for the device.");
  bind_state<ExponentialMovingAverage>(average);
  auto scaler =
      nb::class_<GradScaler>(module, "GradScaler", "Scales a loss for training in f16 and skips steps that overflowed.");
  scaler
      .def(
          "__init__",
          [](GradScaler* self, double initial_scale, double growth_factor, double backoff_factor, std::int64_t growth_interval,
             bool enabled) {
            new (self) GradScaler({initial_scale, growth_factor, backoff_factor, growth_interval, {}, enabled});
          },
          "initial_scale"_a = 65536.0, "growth_factor"_a = 2.0, "backoff_factor"_a = 0.5, "growth_interval"_a = 2000,
          "enabled"_a = true)
      .def("scale", static_cast<Tensor (GradScaler::*)(const Tensor&)>(&GradScaler::scale), "loss"_a, kUnlocked,
           "loss * scale, differentiable.")
      .def("unscale", static_cast<void (GradScaler::*)(Optimizer&)>(&GradScaler::unscale), "optimizer"_a, kUnlocked,
           "Divides the gradients by the scale, to look at them or to clip them. Raises Error if called twice between updates.")
      .def("step", &GradScaler::step, "optimizer"_a, kUnlocked, "The optimizer's step, skipped if a gradient is not finite.")
      .def("update", &GradScaler::update, kUnlocked, "Updates the scale after all optimizers have stepped.")
      .def_prop_ro("enabled", &GradScaler::enabled, "Whether it does anything.")
      .def_prop_ro("current_scale", static_cast<double (GradScaler::*)() const>(&GradScaler::scale), "Waits for the device.")
      .def_prop_ro("growth_tracker", &GradScaler::growth_tracker,
                   "Good steps since the scale last changed. Waits for the device.")
      .def_prop_ro("skipped", &GradScaler::skipped, "Skipped steps. Waits for the device.");
  bind_state<GradScaler>(scaler);
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  bind_optimizer(module);
  bind_optimizer_kinds(module);
  bind_schedules(module);
  bind_training(module);
}

}  // namespace polyphase::python
