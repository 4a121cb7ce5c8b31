#include "layers/streaming/key_value_ring.hpp"

#include <algorithm>
#include <vector>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"

namespace polyphase {

KeyValueRing::KeyValueRing(std::int64_t context) : context_(context) {
  require<ShapeError>(context >= 1, "KeyValueRing: expected context >= 1, got ", context);
}

KeyValueRing::Seen KeyValueRing::push(const Tensor& keys, const Tensor& values) {
  require<ShapeError>(keys.rank() == 4 && values.rank() == 4 && keys.size(2) == values.size(2),
                      "KeyValueRing: expected keys (N, H, n, D) and values (N, H, n, E), got ", keys.shape(), " and ",
                      values.shape());
  leave_rows();
  keys_.require_like(keys), values_.require_like(values);
  const std::int64_t first_key = positions_ - keys_.size(), kept = std::min(keys_.size() + keys.size(2), context_ - 1);
  const Seen seen{keys_.advance(keys, kept), values_.advance(values, kept), first_key};
  layers::count_on(positions_, keys.size(2));
  if (next_.defined()) next_ += static_cast<double>(keys.size(2));
  return seen;
}

Tensor KeyValueRing::next_position(Device device) {
  leave_rows();
  if (!next_.defined() || next_.device() != device)
    next_ = Tensor::full({1}, static_cast<double>(positions_), {.dtype = DType::i64, .device = device});
  return next_;
}

Tensor KeyValueRing::next_positions(std::int64_t count, Device device) {
  return Tensor::arange(0, static_cast<double>(count), 1, {.dtype = DType::i64, .device = device}) + next_position(device);
}

namespace {

/// Positions first, ..., first + count - 1 of rows (N, H, R, D), as the one or two pieces in which they lie.
std::vector<Tensor> pieces_of(const Tensor& rows, std::int64_t first, std::int64_t count) {
  const std::int64_t at = first % rows.size(2), before_end = std::min(count, rows.size(2) - at);
  std::vector<Tensor> pieces{rows.narrow(2, at, before_end)};
  if (count > before_end) pieces.push_back(rows.narrow(2, 0, count - before_end));
  return pieces;
}

}  // namespace

KeyValueRing::Rows KeyValueRing::rows(const RowsOptions& options) {
  const Shape shape{options.samples, options.heads, context_ + options.added - 1, options.head_size};
  const auto is_like = [&](const Tensor& tensor) {
    return tensor.dtype() == options.like.dtype && tensor.device() == options.like.device;
  };
  if (rows_.keys.defined() && rows_.keys.shape() == shape && is_like(rows_.keys)) return rows_;
  leave_rows();
  const NoGradGuard no_grad;
  const std::int64_t kept = keys_.size();
  const Tensor none = Tensor::empty({options.samples, options.heads, 0, options.head_size}, options.like);
  if (kept > 0) {
    keys_.require_like(none), values_.require_like(none);
    const Tensor held = keys_.followed_by(none);
    require<DTypeError>(held.dtype() == options.like.dtype, "KeyValueRing: expected keys and values of the dtype before, ",
                        held.dtype(), ", got ", options.like.dtype);
    require<DeviceError>(held.device() == options.like.device, "KeyValueRing: expected the device of the keys before, ",
                         held.device(), ", got ", options.like.device);
  }
  Rows fresh{Tensor::zeros(shape, options.like), Tensor::zeros(shape, options.like),
             Tensor::zeros({2}, {DType::i64, options.like.device})};
  fresh.position.narrow(0, 0, 1).fill_(static_cast<double>(positions_));
  if (kept > 0) {
    const auto fill = [&](const Tensor& to, const layers::HeldPositions& from) {
      const Tensor all = from.followed_by(none);
      std::int64_t begin = 0;
      for (Tensor& piece : pieces_of(to, positions_ - kept, kept)) {
        piece.copy_(all.narrow(2, begin, piece.size(2)));
        begin += piece.size(2);
      }
    };
    fill(fresh.keys, keys_), fill(fresh.values, values_);
  }
  rows_ = fresh;
  keys_.clear(), values_.clear();
  next_ = {};
  layers::note_new_state();
  return rows_;
}

void KeyValueRing::count_on(std::int64_t count) { layers::count_on(positions_, count); }

void KeyValueRing::leave_rows() {
  if (!rows_.keys.defined()) return;
  const NoGradGuard no_grad;
  const std::int64_t kept = std::min(positions_, context_ - 1);
  const auto moved = [&](const Tensor& rows) { return cat(pieces_of(rows, positions_ - kept, kept), 2); };
  if (kept > 0) keys_.keep(moved(rows_.keys)), values_.keep(moved(rows_.values));
  rows_ = {};
  layers::note_new_state();
}

std::int64_t KeyValueRing::positions() const {
  layers::note_new_state();
  return positions_;
}

void KeyValueRing::reset() {
  positions_ = 0;
  next_ = {};
  rows_ = {};
  keys_.clear();
  values_.clear();
}

}  // namespace polyphase
