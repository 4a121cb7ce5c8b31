#include "layers/streaming/stream.hpp"

#include <algorithm>
#include <vector>

#include "autograd/no_grad.hpp"
#include "ops/length.hpp"

namespace polyphase {
namespace {

/// The quotient rounded down.
std::int64_t floor_div(std::int64_t numerator, std::int64_t denominator) {
  return numerator / denominator - (numerator % denominator < 0 ? 1 : 0);
}

ReceptiveField field_of(const ModuleStream& stream) {
  const auto [up, down] = stream.rate();
  const std::int64_t period = stream.period();
  ReceptiveField field{INT64_MIN, INT64_MIN};
  for (std::int64_t t = 0; t < period; ++t) {
    const std::int64_t own = floor_div(t * down, up);
    const Span inputs = stream.inputs_of({t, t});
    field.left = std::max(field.left, own - inputs.first);
    field.right = std::max(field.right, inputs.last - own);
  }
  return field;
}

}  // namespace

ReceptiveField receptive_field(Module& network) { return field_of(*network.make_stream()); }

Stream::Stream(Module& network) : stream_(network.make_stream()) {
  static_cast<void>(layers::joined(ModuleStream::Layout::channels_first, *stream_, network));
}

void Stream::reserve(std::int64_t max_positions) {
  require<ShapeError>(max_positions >= 1, "Stream::reserve: expected max_positions >= 1, got ", max_positions);
  max_positions_ = max_positions;
}

Tensor Stream::push(const Tensor& x) {
  require<Error>(!is_finished_, "Stream::push: expected no more positions after finish(); reset() begins a new stream");
  require<ShapeError>((x.rank() == 3 || (x.rank() == 2 && x.dtype() == DType::i64)) && x.size(-1) >= 1,
                      "Stream::push: expected x (N, C, n >= 1), or indices (N, n), got ", x.shape());
  const NoGradGuard no_grad;
  const std::int64_t positions = x.size(-1);
  if (!empty_.defined()) empty_ = x.narrow(-1, 0, 0).clone();
  require<ShapeError>(x.narrow(-1, 0, 0).shape() == empty_.shape(), "Stream::push: expected x (N=", empty_.size(0),
                      empty_.rank() == 3 ? concat(", C=", empty_.size(1)) : "", ", n) as before, got ", x.shape());
  std::vector<Tensor> pieces;
  for (std::int64_t begin = 0; begin < positions; begin += max_positions_) {
    const std::int64_t count = std::min(max_positions_, positions - begin);
    pieces.push_back(stream_->push(x.narrow(-1, begin, count).contiguous(), false));
    if (count == positions - begin) break;  // begin + max_positions_ may overflow
  }
  return pieces.size() == 1 ? pieces.front() : cat(pieces, -1);
}

Tensor Stream::finish() {
  require<Error>(empty_.defined() && !is_finished_, "Stream::finish: expected a stream that was begun and not finished");
  const NoGradGuard no_grad;
  is_finished_ = true;
  return stream_->push(empty_, true);
}

void Stream::reset() {
  stream_->reset();
  empty_ = {};
  is_finished_ = false;
}

std::int64_t Stream::latency() const { return std::max<std::int64_t>(field_of(*stream_).right, 0); }

}  // namespace polyphase
