#include "layers/residual.hpp"

#include "layers/fused.hpp"

namespace polyphase {

Tensor Residual::forward(const Tensor& x) { return layers::forward_residual(block_.modules(), x, scale_); }

}  // namespace polyphase
