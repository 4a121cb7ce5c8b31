#include "autograd/autocast.hpp"

#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"

namespace polyphase {
namespace {

constinit thread_local AutocastGuard* current = nullptr;

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace

AutocastGuard::AutocastGuard(DType dtype) : dtype_(dtype), previous_(current), recording_(cuda::capturing()) {
  require<DTypeError>(is_half(dtype), "AutocastGuard: expected bf16 or f16, got ", dtype);
  current = this;
}

AutocastGuard::AutocastGuard(std::nullopt_t) : previous_(current) { current = this; }

AutocastGuard::~AutocastGuard() { current = previous_; }

std::optional<DType> autocast_dtype() { return current == nullptr ? std::nullopt : current->dtype_; }

struct AutocastAccess {
  // Off the tape. A recorded graph must cast for itself: an earlier guard's cast holds the values of its time.
  static Tensor parameter_cast(AutocastGuard& guard, const Tensor& parameter) {
    const NoGradGuard no_grad;
    const auto value = [&] { return parameter.detach().to(*guard.dtype_); };
    if (guard.recording_ != cuda::capturing()) return value();
    const void* const place = TensorAccess::meta(parameter).get();
    const std::uint64_t version = parameter.storage().version();
    const auto known = guard.casts_.find(place);
    if (known != guard.casts_.end() && known->second.version == version) return known->second.value.detach();
    // A cast of a part may be read by another one before it is there.
    if (backend_of(parameter.device()).is_in_part()) return value();
    AutocastGuard::Cast& cast = guard.casts_[place] = {parameter, value(), version};
    return cast.value.detach();
  }
};

namespace autograd {

Tensor lowered(const Tensor& tensor) {
  const std::optional<DType> dtype = autocast_dtype();
  if (!dtype || !tensor.defined() || tensor.dtype() == *dtype) return tensor;
  if (tensor.dtype() != DType::f32 && !is_half(tensor.dtype())) return tensor;
  if (!tensor.is_leaf() || !tensor.requires_grad()) return tensor.to(*dtype);
  // One node per use, so that each backward pass has its own and the gradients of several uses are added in the parameter's
  // dtype.
  return record("autocast", AutocastAccess::parameter_cast(*current, tensor), {tensor},
                [from = tensor.dtype()](const Tensor& g, Needs) { return Gradients{g.to(from)}; });
}

bool raises(const Tensor& tensor) { return tensor.defined() && is_half(tensor.dtype()) && autocast_dtype().has_value(); }

Tensor raised(const Tensor& tensor) { return raises(tensor) ? tensor.to(DType::f32) : tensor; }

bool promotes(const Tensor& a, const Tensor& b) {
  return a.dtype() != b.dtype() && is_floating_point(a.dtype()) && is_floating_point(b.dtype()) && autocast_dtype().has_value();
}

Tensor promoted(const Tensor& tensor, const Tensor& other) {
  const DType a = tensor.dtype(), b = other.dtype();
  if (a == DType::f64 || b == DType::f64) return tensor.to(DType::f64);
  return tensor.to(a == b ? a : DType::f32);
}

}  // namespace autograd
}  // namespace polyphase
