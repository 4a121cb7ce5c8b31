#pragma once
// Segments of audio laid over one another with triangular weights (facebookresearch/encodec@0e2d0ae:encodec/utils.py,
// _linear_overlap_add). Internal.

#include <cstdint>

#include "tensor/tensor.hpp"

namespace polyphase::networks {

/// Takes segments in order and returns audio as soon as no later segment changes it. Differentiable. A segment begins `stride`
/// positions after the one before; position i of S has the weight 1/2 - |(i + 1)/(S + 1) - 1/2|, S the length of the first
/// segment; sums are divided by the sum of weights.
class SegmentOverlap {
 public:
  /// stride >= 1.
  explicit SegmentOverlap(std::int64_t stride) : stride_(stride) {}
  /// segment (N, C, n), n at most the length of the first -> (N, C, stride), or what there is where n is less. Throws
  /// ShapeError for a longer segment, and for one after a segment shorter than the stride.
  [[nodiscard]] Tensor add(const Tensor& segment);
  /// What is left of the last segment, (N, C, m). Throws Error before add().
  [[nodiscard]] Tensor finish();
  void reset();

 private:
  [[nodiscard]] Tensor take(std::int64_t count);

  std::int64_t stride_;
  bool is_short_ = false;  // the last segment was
  Tensor first_weights_;   // of the first segment
  Tensor sum_;             // weighted audio not returned yet, (N, C, m)
  Tensor weights_;         // its weights, (m)
};

}  // namespace polyphase::networks
