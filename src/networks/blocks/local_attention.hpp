#pragma once
// SNAC's attention within windows (hubertsiuzdak/snac@f49016a:snac/attention.py, LocalMHA). Internal.

#include <cstdint>

#include "layers/linear.hpp"
#include "layers/norm.hpp"

namespace polyphase {

/// x + to_out(attention(to_qkv(norm(x)))), x (N, C, L): positions are cut into windows, and each sees all of its own window.
/// Heads of 64 channels; rotary position embedding counts from the window's start. Buffer: rel_pos.inv_freq (32), the angle per
/// position of each pair.
class LocalAttention : public Module {
 public:
  /// Throws ShapeError unless `channels` is a multiple of 64 and the window at least 1.
  LocalAttention(std::int64_t channels, std::int64_t window);
  void visit(Visitor& visitor) override;
  /// Throws ShapeError unless L is a multiple of the window.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Waits for whole windows.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  [[nodiscard]] Tensor heads_of(const Tensor& rows) const;

  std::int64_t channels_, window_;
  LayerNorm norm_;
  Linear to_qkv_, to_out_;
  Tensor inv_freq_;  // (32)
};

}  // namespace polyphase
