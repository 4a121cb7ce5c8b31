// Writes to existing elements: the members of Tensor that end in an underscore. Never recorded.

#include "autograd/no_grad.hpp"
#include "tensor/backend.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {
namespace {

void require_unfollowed(const char* operation, const char* what, const Tensor& tensor) {
  require<AutogradError>(!grad_enabled() || !tensor.requires_grad(), operation, ": the ", what,
                         " requires grad and in-place writes are not recorded; use a NoGradGuard or detach()");
}

// An expanded tensor has elements that share memory: which of several values would stay is not defined.
bool has_repeated_elements(const Tensor& tensor) {
  for (int d = 0; d < tensor.rank(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) == 0) return true;
  }
  return false;
}

}  // namespace

Tensor& Tensor::fill_(double value) {
  require_unfollowed("fill_", "tensor", *this);
  require_representable("fill_", value, dtype());
  if (numel() == 0) return *this;
  backend_of(device()).fill(*this, value);
  storage().bump_version();
  return *this;
}

Tensor& Tensor::copy_(const Tensor& source) {
  require<Error>(source.defined(), "copy_: the source is undefined");
  require_unfollowed("copy_", "tensor", *this);
  require_unfollowed("copy_", "source", source);
  require<ShapeError>(!has_repeated_elements(*this), "copy_: expected a destination whose elements are distinct, got shape ",
                      shape(), " with strides ", strides());
  require<ShapeError>(broadcast_shapes("copy_", shape(), source.shape()) == shape(),
                      "copy_: expected a source that broadcasts to ", shape(), ", got ", source.shape());
  if (numel() == 0 || is_same(source)) return *this;
  Tensor from = source.detach().to(device());
  if (from.storage().shares_with(storage())) from = from.clone();
  backend_of(device()).copy(*this, from.expand(shape()));
  storage().bump_version();
  return *this;
}

}  // namespace polyphase
