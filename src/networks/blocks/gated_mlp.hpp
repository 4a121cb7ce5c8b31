#pragma once
// The feed-forward part of transformers as Qwen's. Internal.

#include <cstdint>
#include <memory>

#include "layers/linear.hpp"

namespace polyphase {

/// (..., channels) -> (..., channels): down_proj(activation(gate_proj(x))*up_proj(x)) without biases; SwiGLU where the
/// activation is SiLU (Shazeer, arXiv 2002.05202).
class GatedMlp : public Module {
 public:
  struct Options {
    std::int64_t channels = 0;
    std::int64_t hidden = 0;
    std::shared_ptr<Module> activation{};  ///< elementwise, without parameters
  };
  explicit GatedMlp(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// In a ChannelsLast.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Linear gate_, up_, down_;
  std::shared_ptr<Module> activation_;
};

}  // namespace polyphase
