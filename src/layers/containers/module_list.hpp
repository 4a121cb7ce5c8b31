#pragma once
// A list of modules for a network that calls each of them itself.

#include <utility>

#include "../../layers/containers/module_sequence.hpp"

namespace polyphase {

/// A list of modules that are parameters, state and training mode of what holds it:
///
///     struct Net : pp::Module {
///       pp::ModuleList ups;                       // ups.push_back(pp::ConvTranspose1d({...})) in the constructor
///       void visit(pp::Visitor& v) override { v.module("ups", ups); }
///       pp::Tensor forward(const pp::Tensor& x) override {
///         pp::Tensor y = x;
///         for (const auto& up : ups) y = up->forward(pp::leaky_relu(y, 0.1));
///         return y;
///       }
///     };
///
/// Children are named by position, "ups.0.weight", "ups.1.bias", as in PyTorch, or by named(). A copy shares the children.
class ModuleList : public layers::ModuleSequence<ModuleList> {
 public:
  static constexpr const char* kName = "ModuleList";

  ModuleList() = default;
  /// Takes ownership of the modules: `pp::ModuleList convs(pp::Conv1d({...}), pp::Conv1d({...}))`.
  template <layers::Child... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneOf<ModuleList, M...>) explicit ModuleList(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// Throws NotImplemented, as PyTorch's does: a list does not define how its modules are combined.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};

}  // namespace polyphase
