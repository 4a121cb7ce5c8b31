#include "optim/adam.hpp"

#include <cmath>

#include "device/backend.hpp"

namespace polyphase {
namespace {

std::vector<ParameterGroup> one_group(std::vector<Tensor> parameters) { return {{.parameters = std::move(parameters)}}; }

AdamOptions plain(const AdamWOptions& options) {
  return {.learning_rate = options.learning_rate,
          .betas = options.betas,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay};
}

}  // namespace

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam("Adam", one_group(std::move(parameters)), options, false) {}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options) : Adam("Adam", std::move(groups), options, false) {}

Adam::Adam(const char* name, std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled)
    : Optimizer(name, std::move(groups), {options.learning_rate, options.weight_decay}, Moments::momentum_and_second),
      options_(options),
      decoupled_(decoupled) {
  const auto [first, second] = options.betas;
  require<ShapeError>(first >= 0 && first < 1 && second >= 0 && second < 1, name, ": expected betas in [0, 1), got ", first,
                      " and ", second);
  require<ShapeError>(std::isfinite(options.epsilon) && options.epsilon >= 0, name, ": expected epsilon >= 0, got ",
                      options.epsilon);
}

void Adam::update(Backend& backend, std::span<const OptimizerSlot> slots, const Group& group, const StepControl& control) {
  backend.adam_step(slots,
                    {.beta1 = options_.betas.first,
                     .beta2 = options_.betas.second,
                     .epsilon = options_.epsilon,
                     .weight_decay = group.weight_decay,
                     .decoupled = decoupled_},
                    control);
}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : Adam("AdamW", one_group(std::move(parameters)), plain(options), true) {}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Adam("AdamW", std::move(groups), plain(options), true) {}

}  // namespace polyphase
