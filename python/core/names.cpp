#include "names.hpp"

#include <array>
#include <utility>

#include "tensor/error.hpp"

namespace polyphase::python {

DType parse_dtype(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64})
    if (name == name_of(dtype)) return dtype;
  throw DTypeError(concat("expected a dtype f32, f64, f16, bf16 or i64, got '", name, "'"));
}

Activation parse_activation(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Activation>, 5> kNames{{{"none", Activation::none},
                                                                                  {"relu", Activation::relu},
                                                                                  {"leaky_relu", Activation::leaky_relu},
                                                                                  {"tanh", Activation::tanh},
                                                                                  {"snake", Activation::snake}}};
  for (const auto& [known, activation] : kNames)
    if (name == known) return activation;
  throw Error(concat("expected an activation none, relu, leaky_relu, tanh or snake, got '", name, "'"));
}

}  // namespace polyphase::python
