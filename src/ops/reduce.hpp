#pragma once
// Reductions. Sums are accumulated in blocks in a fixed order: the same bits every run.

#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

/// Over all dimensions, to rank 0. Differentiable.
[[nodiscard]] Tensor sum(const Tensor& x);
[[nodiscard]] Tensor mean(const Tensor& x);
/// Over `dims` (negative count from the end), which stay with size 1 if `keepdim`. Differentiable.
[[nodiscard]] Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);
[[nodiscard]] Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);
/// Variance with divisor n - correction (1 = unbiased, as in PyTorch); accurate for any mean. Differentiable.
[[nodiscard]] Tensor var(const Tensor& x, const std::vector<int>& dims, bool keepdim = false, std::int64_t correction = 1);
/// Largest or smallest element over all dimensions; not differentiable. Throws ShapeError on an empty tensor.
[[nodiscard]] Tensor max(const Tensor& x);
[[nodiscard]] Tensor min(const Tensor& x);
/// sqrt(sum of squares) over all dimensions. Differentiable; gradient 0 at 0.
[[nodiscard]] Tensor norm(const Tensor& x);
/// sqrt(sum of squares) over `dims`. Differentiable; gradient 0 at 0.
[[nodiscard]] Tensor norm(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);
/// Sums x down to `shape`, which broadcasts to x's shape: the adjoint of expand. Differentiable.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace polyphase
