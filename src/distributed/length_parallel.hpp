#pragma once
// Convolutions of one long input that is split along its length over the ranks.

#include "../distributed/group.hpp"
#include "../ops/conv.hpp"

namespace polyphase::distributed {

/// conv1d() of the whole input, of which x (N, C_in, L_r) is this rank's piece: rank 0 has the beginning. Returns this rank's
/// piece of the result, (N, C_out, L_r). The ranks exchange the ends of their pieces (halos), forward those of x and backward
/// those of the result's gradient; the outer ends are zeros. Output and input gradient have the bits of the unsplit convolution
/// with the same kernel. The gradients of weight and bias are this rank's part of a sum over all ranks: times world they are
/// what DataParallel averages. All ranks call it in the same order. Throws ShapeError unless stride is 1, the padding is of
/// zeros and keeps the length (P_l + P_r = D*(K - 1)), x is of rank 3, and the piece is at least as long as the padding of
/// either side.
[[nodiscard]] Tensor conv1d_split(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
                                  Group& group);

/// The same for conv_transpose1d() with L_out = S*L: P_l + P_r = D*(K - 1) + 1 - S, no output padding. x (N, C_in, L_r) ->
/// (N, C_out, S*L_r). Throws ShapeError.
[[nodiscard]] Tensor conv_transpose1d_split(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                            const ConvTranspose1dOptions& options, Group& group);

/// x (N, C, L) with the last `left` samples of the rank before and the first `right` samples of the rank behind: (N, C, left +
/// L + right). Zeros at the ends of the whole. Not differentiable. Throws ShapeError if L < left or L < right.
[[nodiscard]] Tensor with_halo(const Tensor& x, std::int64_t left, std::int64_t right, Group& group);

}  // namespace polyphase::distributed
