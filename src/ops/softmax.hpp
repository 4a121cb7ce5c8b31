#pragma once
// Softmax and its logarithm. Differentiable; f16 and bf16 are computed in f32.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// exp(x)/sum(exp(x)) over dimension `dim`, computed from x - max(x) so that nothing overflows. -inf gives 0; NaN if all are
/// -inf.
[[nodiscard]] Tensor softmax(const Tensor& x, int dim = -1);
/// x - log(sum(exp(x))) over dimension `dim`, computed in the same way.
[[nodiscard]] Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace polyphase
