#pragma once
// Names of dtypes and activations, as Python code gives them.

#include <string_view>

#include "tensor/dtype.hpp"
#include "tensor/map_op.hpp"

namespace polyphase::python {

/// "f32", "f64", "f16", "bf16" or "i64". Throws DTypeError with the list.
[[nodiscard]] DType parse_dtype(std::string_view name);
/// "none", "relu", "leaky_relu", "tanh" or "snake". Throws Error with the list.
[[nodiscard]] Activation parse_activation(std::string_view name);

}  // namespace polyphase::python
