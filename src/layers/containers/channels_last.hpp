#pragma once
// Runs modules that take (N, L, C) in a network of modules that take (N, C, L).

#include <utility>

#include "../../layers/containers/module_sequence.hpp"

namespace polyphase {

/// (N, C, L) -> (N, C', L'): transposes to (N, L, C), feeds each module's output to the next, transposes back. For Linear,
/// LayerNorm, RMSNorm, LSTM and LayerScale, which have the channels last. On a GPU, Linear, LayerNorm, LayerScale and
/// elementwise modules compute many positions as they are (64 in fp32, else 4096), Linear by convolutions, without a
/// LengthInvariantGuard or AlgorithmGuard. Examples are EnCodec's SLSTM and a ConvNeXt block:
///
///     pp::Residual({.name = ""}, pp::named("", pp::ChannelsLast(pp::named("lstm", pp::LSTM({...})))))
///     pp::Residual(pp::Conv1d({...}), pp::ChannelsLast(pp::LayerNorm({...}), pp::Linear({...}), pp::GELU(),
///     pp::Linear({...})))
///
/// Indices (N, L) are not transposed, so that an Embedding gives (N, D, L). In general (N, ..., L) becomes (N, L, ...), and
/// back. Children are named by position, as in PyTorch, or by named(). A copy shares the children.
class ChannelsLast : public layers::ModuleSequence<ChannelsLast> {
 public:
  static constexpr const char* kName = "ChannelsLast";

  ChannelsLast() = default;
  /// Takes ownership of the modules.
  template <layers::Child... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneOf<ChannelsLast, M...>) explicit ChannelsLast(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// May return a view, as Tensor::permute does. Throws ShapeError unless x has 2 or more dimensions, and the errors of the
  /// modules.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
};

}  // namespace polyphase
