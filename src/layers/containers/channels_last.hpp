#pragma once
// Modules of (N, L, C) among modules of (N, C, L).

#include <utility>

#include "../../layers/containers/module_sequence.hpp"

namespace polyphase {

/// (N, C, L) -> (N, C', L'): transposes to (N, L, C), feeds each module's output to the next, transposes back. EnCodec's SLSTM
/// and a ConvNeXt block, whose Linear, LayerNorm, RMSNorm, LSTM and LayerScale have the channels last:
///
///     pp::Residual({.name = ""}, pp::named("", pp::ChannelsLast(pp::named("lstm", pp::LSTM({...})))))
///     pp::Residual(pp::Conv1d({...}), pp::ChannelsLast(pp::LayerNorm({...}), pp::Linear({...}), pp::GELU(),
///     pp::Linear({...})))
///
/// Indices (N, L) are left as they are, so that an Embedding gives (N, D, L); of any rank, (N, ..., L) becomes (N, L, ...), and
/// back. Children are named by position, as in PyTorch, or by named(). A copy shares the children.
class ChannelsLast : public layers::ModuleSequence<ChannelsLast> {
 public:
  static constexpr const char* kName = "ChannelsLast";

  ChannelsLast() = default;
  /// Takes the modules over.
  template <layers::Child... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneOf<ChannelsLast, M...>) explicit ChannelsLast(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// A view, as Tensor::permute gives it. Throws ShapeError unless x has 2 dimensions or more, and what the modules throw.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
};

}  // namespace polyphase
