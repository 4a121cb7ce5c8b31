#pragma once
// Modules in sequence.

#include <utility>

#include "../../layers/containers/module_sequence.hpp"

namespace polyphase {

/// Feeds each module's output to the next; a convolution and the activation after it are one pass if that gives the same bits.
/// Children are named by position, as in PyTorch, or by named(): "0.weight", "conv.bias". A copy shares the children.
class Sequential : public layers::ModuleSequence<Sequential> {
 public:
  static constexpr const char* kName = "Sequential";

  Sequential() = default;
  /// Takes ownership of the modules: `pp::Sequential net(pp::Conv1d({...}), pp::ReLU())`.
  template <layers::Child... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneOf<Sequential, M...>) explicit Sequential(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// Returns x itself when empty.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
};

}  // namespace polyphase
