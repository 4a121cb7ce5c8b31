#include "optim/sgd.hpp"

#include <cmath>

#include "device/backend.hpp"

namespace polyphase {

SGD::SGD(std::vector<Tensor> parameters, const SgdOptions& options)
    : SGD(std::vector<ParameterGroup>{{.parameters = std::move(parameters)}}, options) {}

SGD::SGD(std::vector<ParameterGroup> groups, const SgdOptions& options)
    : Optimizer("SGD", std::move(groups), {options.learning_rate, options.weight_decay},
                options.momentum != 0 ? Moments::momentum : Moments::none),
      options_(options) {
  require<ShapeError>(std::isfinite(options.momentum) && options.momentum >= 0, "SGD: expected momentum >= 0, got ",
                      options.momentum);
  require<ShapeError>(std::isfinite(options.dampening), "SGD: expected a finite dampening, got ", options.dampening);
  require<ShapeError>(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                      "SGD: nesterov needs momentum > 0 and dampening 0, got momentum=", options.momentum,
                      ", dampening=", options.dampening);
}

void SGD::update(Backend& backend, std::span<const OptimizerSlot> slots, const Group& group, const StepControl& control) {
  backend.sgd_step(slots,
                   {.momentum = options_.momentum,
                    .dampening = options_.dampening,
                    .weight_decay = group.weight_decay,
                    .nesterov = options_.nesterov},
                   control);
}

}  // namespace polyphase
