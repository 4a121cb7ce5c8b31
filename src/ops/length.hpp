#pragma once
// Operations along the last dimension, and joining tensors. All differentiable.

#include <vector>

#include "../ops/conv.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase {

enum class UpsampleMode : std::uint8_t { nearest, linear };

/// Pads the last dimension at both ends. reflect requires left, right < L, replicate L >= 1; throws ShapeError.
[[nodiscard]] Tensor pad1d(const Tensor& x, Padding padding, PaddingMode mode = PaddingMode::zeros);
/// (..., L) -> (..., L*scale). linear: half-pixel centres (PyTorch's align_corners=False).
[[nodiscard]] Tensor upsample1d(const Tensor& x, std::int64_t scale, UpsampleMode mode = UpsampleMode::nearest);
/// (N, C*r, L) -> (N, C, L*r): y[n, c, l*r + i] = x[n, c*r + i, l].
[[nodiscard]] Tensor pixel_shuffle1d(const Tensor& x, std::int64_t upscale_factor);
struct AvgPool1dOptions {
  std::int64_t kernel_size = 0;   ///< required
  std::int64_t stride = 0;        ///< 0: kernel_size
  std::int64_t padding = 0;       ///< zeros at both ends, at most kernel_size/2
  bool count_include_pad = true;  ///< false: zeros of the padding do not count in a mean
};
/// Means of windows: (..., L) -> (..., (L + 2*padding - kernel_size)/stride + 1), rounded down, as PyTorch's avg_pool1d. Throws
/// ShapeError naming the option that is out of range, or if no window fits; DTypeError for i64.
[[nodiscard]] Tensor avg_pool1d(const Tensor& x, const AvgPool1dOptions& options);
/// Elements of the last dimension by position: index (J) i64 in [0, L) -> (..., J). Throws ShapeError for a position out of
/// range: on the CPU immediately, on a GPU from the next call that waits for it (item(), a copy to the host, synchronize()), so
/// that the check does not wait; these elements are 0 until then.
[[nodiscard]] Tensor index_select(const Tensor& x, const Tensor& index);
/// Joins along an existing dimension; all other sizes equal; at least one tensor.
[[nodiscard]] Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
/// Joins along a new dimension; equal shapes.
[[nodiscard]] Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);

}  // namespace polyphase
