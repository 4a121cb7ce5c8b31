#include "autograd/autocast.hpp"

#include <vector>

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
    if (const Tensor* known = find(guard, parameter)) return known->detach();
    // A cast of a part may be read by another one before it is there.
    if (backend_of(parameter.device()).is_in_part()) return value();
    return keep(guard, parameter, value()).detach();
  }

  // Makes the casts of parameters of one device in one pass.
  static void parameter_casts(AutocastGuard& guard, std::span<const Tensor> parameters) {
    if (parameters.empty() || guard.recording_ != cuda::capturing()) return;
    Backend& backend = backend_of(parameters[0].device());
    if (backend.is_in_part()) return;
    const NoGradGuard no_grad;
    std::vector<Tensor> casts, plain;
    for (const Tensor& parameter : parameters) {
      if (find(guard, parameter) != nullptr) continue;
      plain.push_back(parameter.detach());
      casts.push_back(keep(guard, parameter, Tensor::empty(parameter.shape(), {*guard.dtype_, parameter.device()})));
    }
    if (!plain.empty()) backend.copy_list(casts, plain);
  }

 private:
  static const Tensor* find(const AutocastGuard& guard, const Tensor& parameter) {
    const auto known = guard.casts_.find(TensorAccess::meta(parameter).get());
    const bool is_current = known != guard.casts_.end() && known->second.version == parameter.storage().version();
    return is_current ? &known->second.value : nullptr;
  }
  static const Tensor& keep(AutocastGuard& guard, const Tensor& parameter, const Tensor& value) {
    AutocastGuard::Cast& cast = guard.casts_[TensorAccess::meta(parameter).get()];
    cast = {parameter, value, parameter.storage().version()};
    return cast.value;
  }
};

namespace autograd {
namespace {

bool is_cast_parameter(const Tensor& tensor) { return tensor.is_leaf() && tensor.requires_grad(); }

}  // namespace

void lower_ahead(std::span<const Tensor> tensors) {
  if (!autocast_dtype()) return;
  std::vector<Tensor> in;
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && tensor.dtype() == DType::f32 && is_cast_parameter(tensor) && tensor.is_contiguous())
      in.push_back(tensor);
  AutocastAccess::parameter_casts(*current, in);
}

Tensor lowered(const Tensor& tensor) {
  const std::optional<DType> dtype = autocast_dtype();
  if (!dtype || !tensor.defined() || tensor.dtype() == *dtype) return tensor;
  if (tensor.dtype() != DType::f32 && !is_half(tensor.dtype())) return tensor;
  if (!is_cast_parameter(tensor)) return tensor.to(*dtype);
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
