#include "layers/streaming/key_value_ring.hpp"

#include <algorithm>

#include "ops/elementwise.hpp"

namespace polyphase {

KeyValueRing::KeyValueRing(std::int64_t context) : context_(context) {
  require<ShapeError>(context >= 1, "KeyValueRing: expected context >= 1, got ", context);
}

KeyValueRing::Seen KeyValueRing::push(const Tensor& keys, const Tensor& values) {
  require<ShapeError>(keys.rank() == 4 && values.rank() == 4 && keys.size(2) == values.size(2),
                      "KeyValueRing: expected keys (N, H, n, D) and values (N, H, n, E), got ", keys.shape(), " and ",
                      values.shape());
  const Seen seen{keys_.followed_by(keys), values_.followed_by(values), positions_ - keys_.size()};
  const std::int64_t all = seen.keys.size(2), kept = std::min(all, context_ - 1);
  keys_.keep(seen.keys.narrow(2, all - kept, kept));
  values_.keep(seen.values.narrow(2, all - kept, kept));
  layers::count_on(positions_, keys.size(2));
  if (next_.defined()) next_ += static_cast<double>(keys.size(2));
  return seen;
}

Tensor KeyValueRing::next_positions(std::int64_t count, Device device) {
  if (!next_.defined() || next_.device() != device)
    next_ = Tensor::full({1}, static_cast<double>(positions_), {.dtype = DType::i64, .device = device});
  return Tensor::arange(0, static_cast<double>(count), 1, {.dtype = DType::i64, .device = device}) + next_;
}

void KeyValueRing::reset() {
  positions_ = 0;
  next_ = {};
  keys_.clear();
  values_.clear();
}

}  // namespace polyphase
