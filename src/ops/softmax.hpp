#pragma once
// Softmax and its logarithm. Differentiable; f16 and bf16 are computed in f32.

#include "../tensor/tensor.hpp"

namespace polyphase {

/// exp(x)/sum(exp(x)) over dimension `dim`, from x - max(x) so that nothing overflows. -inf gives 0; NaN where all are -inf.
[[nodiscard]] Tensor softmax(const Tensor& x, int dim = -1);
/// x - log(sum(exp(x))) over dimension `dim`, likewise.
[[nodiscard]] Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace polyphase
