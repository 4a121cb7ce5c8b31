#include "networks/blocks/segment_overlap.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/elementwise.hpp"
#include "ops/length.hpp"

namespace polyphase::networks {
namespace {

Tensor triangle(std::int64_t length, const Tensor& like) {
  std::vector<double> values(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.5 - std::abs(static_cast<double>(i + 1) / static_cast<double>(length + 1) - 0.5);
  return Tensor::from_vector(values, {length}, Device::cpu()).to(like.dtype()).to(like.device());
}

// The sum of two tensors that begin together, as long as the longer one.
Tensor added(const Tensor& a, const Tensor& b) {
  const std::int64_t length = std::max(a.size(-1), b.size(-1));
  const auto filled = [length](const Tensor& x) { return x.size(-1) == length ? x : pad1d(x, {0, length - x.size(-1)}); };
  return filled(a) + filled(b);
}

}  // namespace

Tensor SegmentOverlap::add(const Tensor& segment) {
  require<ShapeError>(!is_short_, "overlap: expected segments of at least ", stride_, " samples but for the last");
  if (!first_weights_.defined()) first_weights_ = triangle(segment.size(-1), segment);
  const std::int64_t length = segment.size(-1);
  require<ShapeError>(length <= first_weights_.size(0), "overlap: expected segments of at most ", first_weights_.size(0),
                      " samples, as the first has, got ", length);
  is_short_ = length < stride_;
  const Tensor weights = first_weights_.narrow(0, 0, length);
  const Tensor weighted = segment * weights;
  sum_ = sum_.defined() ? added(sum_, weighted) : weighted;
  weights_ = weights_.defined() ? added(weights_, weights) : weights;
  return take(std::min(stride_, sum_.size(-1)));
}

Tensor SegmentOverlap::take(std::int64_t count) {
  const Tensor out = sum_.narrow(-1, 0, count) / weights_.narrow(0, 0, count);
  sum_ = sum_.narrow(-1, count, sum_.size(-1) - count);
  weights_ = weights_.narrow(0, count, weights_.size(0) - count);
  return out;
}

Tensor SegmentOverlap::finish() {
  require<Error>(sum_.defined(), "overlap: expected at least one segment");
  return take(sum_.size(-1));
}

void SegmentOverlap::reset() {
  is_short_ = false;
  first_weights_ = {};
  sum_ = {};
  weights_ = {};
}

}  // namespace polyphase::networks
