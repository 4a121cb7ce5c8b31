#pragma once
// Small tensors that an operation needs repeatedly (windows), computed on the host and kept on the device: a later call uploads
// nothing and does not wait. Internal to the library.

#include <array>
#include <cstdint>
#include <functional>

#include "tensor/tensor.hpp"

namespace polyphase::ops {

/// The tensor that `make` returns for these numbers, on the requested device. It is made once and shared, so it must not be
/// written to. `operation` names the owner of the table, also in errors; `numbers` is everything the table depends on. The
/// first 256 tables of up to 1 MB stay for the whole program, because recorded graphs and other streams may read them at any
/// time; later ones are recomputed by every call.
[[nodiscard]] Tensor constant(const char* operation, const std::array<std::int64_t, 3>& numbers, DType dtype, Device device,
                              const std::function<Tensor()>& make);

/// value(j) for j < count, on the host. The memory comes from the tensor's allocator: sizes from the user fail with its
/// OutOfMemory, while a std::vector would throw an exception that is not an Error.
template <class T, class Value>
[[nodiscard]] Tensor host_table(std::int64_t count, const Value& value) {
  Tensor table = Tensor::empty({count}, {dtype_of<T>, Device::cpu()});
  T* const at = table.data<T>();
  for (std::int64_t j = 0; j < count; ++j) at[j] = value(j);
  return table;
}

}  // namespace polyphase::ops
