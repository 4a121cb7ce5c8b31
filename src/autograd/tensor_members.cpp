// The autograd members of Tensor.

#include <utility>

#include "autograd/engine.hpp"
#include "autograd/node.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {
namespace {

// The tensor's data on the tape, created if there is none yet.
autograd::Meta& meta_of(const Tensor& tensor) {
  if (!TensorAccess::meta(tensor)) TensorAccess::set_meta(tensor, std::make_shared<autograd::Meta>());
  return *TensorAccess::meta(tensor);
}

}  // namespace

bool Tensor::requires_grad() const {
  const auto& meta = get().meta;
  return meta && (meta->requires_grad || meta->node);
}

Tensor& Tensor::set_requires_grad(bool value) {
  require<AutogradError>(is_leaf(), "set_requires_grad: expected a leaf, got the output of an operation; use detach()");
  require<DTypeError>(!value || is_floating_point(dtype()), "set_requires_grad: expected a floating-point tensor, got ",
                      dtype());
  if (value != requires_grad()) meta_of(*this).requires_grad = value;
  return *this;
}

bool Tensor::is_leaf() const {
  const auto& meta = get().meta;
  return !meta || !meta->node;
}

Tensor Tensor::grad() const {
  const auto& meta = get().meta;
  return meta ? meta->grad : Tensor();
}

void Tensor::set_grad(const Tensor& grad) const {
  if (!grad.defined()) {
    if (get().meta) get().meta->grad = Tensor();
    return;
  }
  require<ShapeError>(grad.shape() == shape(), "set_grad: expected a gradient of shape ", shape(), ", got ", grad.shape());
  require<DTypeError>(grad.dtype() == dtype(), "set_grad: expected a gradient of ", dtype(), ", got ", grad.dtype());
  require<DeviceError>(grad.device() == device(), "set_grad: expected a gradient on ", device(), ", got ", grad.device());
  meta_of(*this).grad = grad.detach();  // off the tape, so that no tensor can own itself
}

Tensor Tensor::detach() const { return TensorAccess::view(*this, shape(), strides(), offset()); }

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  require<Error>(defined(), "backward: the tensor is undefined");
  autograd::run_backward(*this, gradient, retain_graph);
}

}  // namespace polyphase
