#pragma once
// Small tensors that an operation needs again and again (windows), made on the host and kept on the device: a
// later call uploads nothing and waits for nothing. Internal to the library.

#include <array>
#include <cstdint>
#include <functional>

#include "tensor/tensor.hpp"

namespace polyphase::ops {

/// The tensor that `make` gives for these numbers, on the device asked for; made once and shared, so never to be written to.
/// `operation` names whose table it is, also in errors; `numbers` is all that it depends on. The first 256 tables of up to 1 MB
/// stay for the whole program, for recorded graphs and other streams may read them at any time; later ones are made anew by
/// every call.
[[nodiscard]] Tensor constant(const char* operation, const std::array<std::int64_t, 3>& numbers, DType dtype, Device device,
                              const std::function<Tensor()>& make);

/// value(j) for j < count, on the host. Memory comes from the tensor's allocator: sizes that a user gives are refused with its
/// OutOfMemory, where a std::vector of them would throw what is no Error.
template <class T, class Value>
[[nodiscard]] Tensor host_table(std::int64_t count, const Value& value) {
  Tensor table = Tensor::empty({count}, {dtype_of<T>, Device::cpu()});
  T* const at = table.data<T>();
  for (std::int64_t j = 0; j < count; ++j) at[j] = value(j);
  return table;
}

}  // namespace polyphase::ops
