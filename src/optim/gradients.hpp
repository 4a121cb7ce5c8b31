#pragma once
// The gradients of a list of parameters, in the form of the backends. Not for users.

#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase {

/// The existing gradients, made contiguous in their parameters. Throws DeviceError naming `operation` unless all are on one
/// device.
inline std::vector<Tensor> contiguous_gradients(const char* operation, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_contiguous()) parameter.set_grad(gradient.detach().contiguous());
    gradients.push_back(parameter.grad());
    require<DeviceError>(gradient.device() == gradients.front().device(), operation, ": expected gradients on one device, got ",
                         gradients.front().device(), " and ", gradient.device());
  }
  return gradients;
}

}  // namespace polyphase
