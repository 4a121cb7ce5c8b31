// Writes to existing elements: the members of Tensor that end in an underscore, and its operators +=, -=, *= and /=. Never
// recorded.

#include <array>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "tensor/operation.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {
namespace {

// `operation` is "fill_", "+=" or similar.
void require_unfollowed(const char* operation, const char* what, const Tensor& tensor) {
  if (!grad_enabled() || !tensor.requires_grad()) return;
  const bool is_operator = operation[1] == '=';
  throw AutogradError(concat(operation, ": the ", what, " requires grad and in-place writes are not recorded; ",
                             is_operator ? concat("write a = a ", operation[0], " b, or ") : "",
                             "use a NoGradGuard or detach()"));
}

// An expanded tensor has elements that share memory, so which of several values would stay is not defined.
bool has_repeated_elements(const Tensor& tensor) {
  for (int d = 0; d < tensor.rank(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) == 0) return true;
  }
  return false;
}

void require_distinct(const char* operation, const Tensor& tensor) {
  require<ShapeError>(!has_repeated_elements(tensor), operation,
                      ": expected a destination whose elements are distinct, got shape ", tensor.shape(), " with strides ",
                      tensor.strides());
}

void require_writable(const char* operation, const Tensor& left) {
  require_unfollowed(operation, "left side", left);
  require_distinct(operation, left);
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.offset() == b.offset() && a.shape() == b.shape() && a.strides() == b.strides();
}

// left = op(left, right), with the bits of the separate operation.
Tensor& combine(const char* operation, MapOp op, Tensor& left, const Tensor& right) {
  ops::require_defined(operation, "the right side", right);
  require_writable(operation, left);
  require_unfollowed(operation, "right side", right);
  require<ShapeError>(broadcast_shapes(operation, left.shape(), right.shape()) == left.shape(), operation,
                      ": expected a right side that broadcasts to ", left.shape(), ", got ", right.shape());
  if (autograd::promotes(left, right)) {
    const Tensor wide = ops::map(operation, op, {autograd::promoted(left, right), autograd::promoted(right, left)});
    return left.copy_(wide);
  }
  ops::require_alike(operation, std::array{left, right});
  if (left.numel() == 0) return left;
  const bool overlaps = right.storage().shares_with(left.storage()) && !is_same_view(left, right);
  const Tensor from = ops::broadcast_view(overlaps ? right.detach().clone() : right, left.shape());
  backend_of(left.device()).map(op, left, std::array{left, from}, {});
  left.storage().bump_version();
  return left;
}

// left = p*left + q.
Tensor& scale_and_shift(const char* operation, Tensor& left, double p, double q) {
  require_writable(operation, left);
  for (const double value : {p, q}) require_representable(operation, value, left.dtype());
  if (left.numel() == 0) return left;
  backend_of(left.device()).map(MapOp::affine, left, std::array{left}, {p, q});
  left.storage().bump_version();
  return left;
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
  require_distinct("copy_", *this);
  require<ShapeError>(broadcast_shapes("copy_", shape(), source.shape()) == shape(),
                      "copy_: expected a source that broadcasts to ", shape(), ", got ", source.shape());
  if (numel() == 0 || is_same(source)) return *this;
  const OperationScope scope("copy_");
  Tensor from = source.detach().to(device());
  if (from.storage().shares_with(storage())) from = from.clone();
  backend_of(device()).copy(*this, from.expand(shape()));
  storage().bump_version();
  return *this;
}

Tensor& Tensor::operator+=(const Tensor& other) { return combine("+=", MapOp::add, *this, other); }
Tensor& Tensor::operator-=(const Tensor& other) { return combine("-=", MapOp::sub, *this, other); }
Tensor& Tensor::operator*=(const Tensor& other) { return combine("*=", MapOp::mul, *this, other); }
Tensor& Tensor::operator/=(const Tensor& other) { return combine("/=", MapOp::div, *this, other); }
Tensor& Tensor::operator+=(double value) { return scale_and_shift("+=", *this, 1, value); }
Tensor& Tensor::operator-=(double value) {
  require_representable("-=", value, dtype());
  return scale_and_shift("-=", *this, 1, -value);
}
Tensor& Tensor::operator*=(double value) { return scale_and_shift("*=", *this, value, 0); }
Tensor& Tensor::operator/=(double value) {
  require_writable("/=", *this);
  require_representable("/=", value, dtype());
  return copy_(detach() / value);
}

}  // namespace polyphase
