#include "layers/fused.hpp"

#include <typeinfo>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "ops/elementwise.hpp"
#include "tensor/error.hpp"

namespace polyphase::layers {
namespace {

/// `module` as a T; null if its type is not exactly T.
template <class T>
const T* exactly(const Module& module) {
  return typeid(module) == typeid(T) ? static_cast<const T*>(&module) : nullptr;
}

ConvOutputOptions output_options_of(const Module& module) {
  if (const auto* leaky = exactly<LeakyReLU>(module))
    return {.activation = Activation::leaky_relu, .slope = leaky->negative_slope()};
  if (exactly<ReLU>(module) != nullptr) return {.activation = Activation::relu};
  if (exactly<Tanh>(module) != nullptr) return {.activation = Activation::tanh};
  if (const auto* snake = exactly<Snake>(module)) return snake->output_options();
  if (const auto* snake = exactly<SnakeBeta>(module)) return snake->output_options();
  return {};
}

bool is_convolution(const Module& module) {
  return exactly<Conv1d>(module) != nullptr || exactly<ConvTranspose1d>(module) != nullptr;
}

bool is_fusable(const Module& module) {
  return exactly<ReLU>(module) != nullptr || exactly<LeakyReLU>(module) != nullptr || exactly<Tanh>(module) != nullptr ||
         exactly<Snake>(module) != nullptr || exactly<SnakeBeta>(module) != nullptr;
}

/// The pass of `length` modules from `first` on. It adds to `residual` if that is defined and the pass can.
struct Pass {
  Tensor y;
  bool has_added = false;
};
Pass run_pass(Modules modules, std::size_t first, std::size_t length, const Tensor& x, const Tensor& residual, double scale) {
  Module& module = *modules[first];
  const bool adds = residual.defined() && is_convolution(module);
  if (length == 1 && !adds) return {module.forward(x)};
  ConvOutputOptions output = length == 2 ? output_options_of(*modules[first + 1]) : ConvOutputOptions{};
  if (adds) output.residual = residual, output.scale = scale;
  if (const auto* conv = exactly<Conv1d>(module)) return {conv->forward_activated(x, output), adds};
  return {exactly<ConvTranspose1d>(module)->forward_activated(x, output), adds};
}

/// residual + scale*(all modules applied to x).
Tensor forward_added(Modules modules, const Tensor& x, const Tensor& residual, double scale) {
  Pass pass{x};
  for (std::size_t i = 0, length = 0; i < modules.size(); i += length) {
    length = pass_length(modules, i);
    const bool is_last = i + length == modules.size();
    const auto* inner = exactly<Sequential>(*modules[i]);
    if (is_last && inner != nullptr) return forward_added(inner->modules(), pass.y, residual, scale);
    pass = run_pass(modules, i, length, pass.y, is_last ? residual : Tensor(), scale);
  }
  if (pass.has_added) return pass.y;
  require<ShapeError>(pass.y.shape() == residual.shape(), "Residual: expected its modules to keep the shape ", residual.shape(),
                      ", got ", pass.y.shape());
  return add_scaled(residual, pass.y, scale);
}

}  // namespace

std::size_t pass_length(Modules modules, std::size_t first) {
  const bool is_pair = first + 1 < modules.size() && is_convolution(*modules[first]) && is_fusable(*modules[first + 1]);
  return is_pair ? 2 : 1;
}

Tensor forward_all(Modules modules, const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0, length = 0; i < modules.size(); i += length) {
    length = pass_length(modules, i);
    y = run_pass(modules, i, length, y, {}, 1).y;
  }
  return y;
}

Tensor forward_residual(Modules modules, const Tensor& x, double scale) { return forward_added(modules, x, x, scale); }

}  // namespace polyphase::layers
