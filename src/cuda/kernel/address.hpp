#pragma once
// Addresses of tensors that an operation may do without.

#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// The tensor's first element; null if it is undefined.
template <class T>
[[nodiscard]] T* address_or_null(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr;
}

}  // namespace polyphase::cuda
