#pragma once
// Modules of (N, L, C) that can compute (N, C, L) without a transposition.

#include "../tensor/tensor.hpp"

namespace polyphase::layers {

/// Not for users. A ChannelsLast of such modules and elementwise ones need not transpose.
class EitherLayout {
 public:
  virtual ~EitherLayout() = default;
  /// x (N, C, L) -> (N, C', L): what forward() makes of x (N, L, C), but for rounding. Throws the errors of forward().
  [[nodiscard]] virtual Tensor forward_channels_first(const Tensor& x) = 0;

 protected:
  EitherLayout() = default;
  EitherLayout(const EitherLayout&) = default;
  EitherLayout& operator=(const EitherLayout&) = default;
};

}  // namespace polyphase::layers
