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
  keys_.require_like(keys), values_.require_like(values);
  const std::int64_t first_key = positions_ - keys_.size(), kept = std::min(keys_.size() + keys.size(2), context_ - 1);
  const Seen seen{keys_.advance(keys, kept), values_.advance(values, kept), first_key};
  layers::count_on(positions_, keys.size(2));
  if (next_.defined()) next_ += static_cast<double>(keys.size(2));
  return seen;
}

Tensor KeyValueRing::next_position(Device device) {
  if (!next_.defined() || next_.device() != device)
    next_ = Tensor::full({1}, static_cast<double>(positions_), {.dtype = DType::i64, .device = device});
  return next_;
}

Tensor KeyValueRing::next_positions(std::int64_t count, Device device) {
  return Tensor::arange(0, static_cast<double>(count), 1, {.dtype = DType::i64, .device = device}) + next_position(device);
}

std::int64_t KeyValueRing::positions() const {
  layers::note_new_state();
  return positions_;
}

void KeyValueRing::reset() {
  positions_ = 0;
  next_ = {};
  keys_.clear();
  values_.clear();
}

}  // namespace polyphase
