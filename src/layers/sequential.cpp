#include "layers/sequential.hpp"

#include "layers/fused.hpp"

namespace polyphase {

Tensor Sequential::forward(const Tensor& x) { return layers::forward_all(modules(), x); }

}  // namespace polyphase
