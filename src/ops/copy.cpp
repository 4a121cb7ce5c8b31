// Copies and conversions: the differentiable members of Tensor that make new elements.

#include "autograd/node.hpp"
#include "device/backend.hpp"
#include "tensor/operation.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {
namespace {

using autograd::Gradients;
using autograd::Needs;

// Same device, contiguous, off the tape.
Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor out = Tensor::empty(tensor.shape(), {dtype, tensor.device()});
  if (out.numel() > 0) backend_of(tensor.device()).copy(out, tensor);
  return out;
}

// Contiguous, off the tape. Copies between two devices other than the host pass through the host.
Tensor moved(const Tensor& tensor, Device device) {
  Backend& target = backend_of(device);  // first, so that a missing device is named before anything is copied
  const Tensor from = tensor.is_contiguous() ? tensor : converted(tensor, tensor.dtype());
  Tensor out = Tensor::empty(tensor.shape(), {tensor.dtype(), device});
  const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
  if (bytes == 0) return out;
  if (from.device().is_cpu()) {
    target.copy_from_host(out.raw(), from.raw(), bytes);
  } else if (device.is_cpu()) {
    backend_of(from.device()).copy_to_host(out.raw(), from.raw(), bytes);
  } else {
    const Storage host(bytes, Device::cpu());
    backend_of(from.device()).copy_to_host(host.data(), from.raw(), bytes);
    target.copy_from_host(out.raw(), host.data(), bytes);
  }
  return out;
}

}  // namespace

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  return autograd::record("contiguous", converted(*this, dtype()), {*this},
                          [](const Tensor& g, Needs) { return Gradients{g}; });
}

Tensor Tensor::clone() const {
  return autograd::record("clone", converted(*this, dtype()), {*this}, [](const Tensor& g, Needs) { return Gradients{g}; });
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  Tensor out = converted(*this, dtype);
  if (!is_floating_point(dtype)) return out;  // integers have no gradient
  return autograd::record("to", out, {*this}, [from = this->dtype()](const Tensor& g, Needs) { return Gradients{g.to(from)}; });
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  const OperationScope scope("to");
  return autograd::record("to", moved(*this, device), {*this},
                          [from = this->device()](const Tensor& g, Needs) { return Gradients{g.to(from)}; });
}

}  // namespace polyphase
