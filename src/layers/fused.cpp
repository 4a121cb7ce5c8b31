#include "layers/fused.hpp"

#include <typeinfo>

#include "layers/activations.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "tensor/backend.hpp"

namespace polyphase::layers {
namespace {

/// `module` as a T, null where it is not exactly one.
template <class T>
const T* exactly(const Module& module) {
  return typeid(module) == typeid(T) ? static_cast<const T*>(&module) : nullptr;
}

ConvEpilogue epilogue_of(const Module& module) {
  if (const auto* leaky = exactly<LeakyReLU>(module))
    return {.activation = Activation::leaky_relu, .slope = leaky->negative_slope()};
  if (exactly<ReLU>(module) != nullptr) return {.activation = Activation::relu};
  if (exactly<Tanh>(module) != nullptr) return {.activation = Activation::tanh};
  if (const auto* snake = exactly<Snake>(module)) return snake->epilogue();
  if (const auto* snake = exactly<SnakeBeta>(module)) return snake->epilogue();
  return {};
}

}  // namespace

std::optional<Tensor> forward_fused(Module& first, Module& second, const Tensor& x) {
  const auto* conv = exactly<Conv1d>(first);
  const auto* transposed = exactly<ConvTranspose1d>(first);
  if (conv == nullptr && transposed == nullptr) return std::nullopt;
  const ConvEpilogue epilogue = epilogue_of(second);
  if (epilogue.activation == Activation::none) return std::nullopt;
  return conv != nullptr ? conv->forward_activated(x, epilogue) : transposed->forward_activated(x, epilogue);
}

}  // namespace polyphase::layers
