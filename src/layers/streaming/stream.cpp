#include "layers/streaming/stream.hpp"

#include <algorithm>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
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

/// A push of one size, its input and its result.
struct Stream::Recording {
  Recording(ModuleStream& stream, const Tensor& x)
      : input(x.clone()), graph(cuda::capture([&] { output = stream.push(input, false); }, x.device().index)) {}
  Tensor input, output;
  cuda::Graph graph;
};

Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

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
    pieces.push_back(push_piece(x.narrow(-1, begin, count).contiguous()));
    if (count == positions - begin) break;  // begin + max_positions_ may overflow
  }
  return pieces.size() == 1 ? pieces.front() : cat(pieces, -1);
}

Tensor Stream::push_piece(const Tensor& x) {
  has_replayed_ = false;
  if (!records_ || x.device().is_cpu() || cuda::capturing()) return stream_->push(x, false);
  constexpr std::int64_t kAlike = 3;
  if (recording_ == nullptr) {
    if (x.shape() != last_shape_ || alike_ < kAlike) return push_and_observe(x);
    recording_ = std::make_unique<Recording>(*stream_, x);
  } else if (x.shape() == last_shape_) {
    recording_->input.copy_(x);
  } else {
    recording_.reset();
    return push_and_observe(x);
  }
  recording_->graph.replay();
  has_replayed_ = true;
  return recording_->output;
}

Tensor Stream::push_and_observe(const Tensor& x) {
  const std::uint64_t before = layers::new_states();
  Tensor y = stream_->push(x, false);
  alike_ = layers::new_states() == before && x.shape() == last_shape_ ? alike_ + 1 : 0;
  last_shape_ = x.shape();
  return y;
}

void Stream::record_pushes(bool wanted) {
  records_ = wanted;
  if (!wanted) recording_.reset();
}

Tensor Stream::finish() {
  require<Error>(empty_.defined() && !is_finished_, "Stream::finish: expected a stream that was begun and not finished");
  const NoGradGuard no_grad;
  is_finished_ = true;
  return stream_->push(empty_, true);
}

void Stream::reset() {
  recording_.reset();
  alike_ = 0;
  stream_->reset();
  empty_ = {};
  is_finished_ = false;
}

std::int64_t Stream::latency() const { return std::max<std::int64_t>(field_of(*stream_).right, 0); }

}  // namespace polyphase
