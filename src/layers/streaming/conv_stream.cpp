#include "layers/streaming/conv_stream.hpp"

#include <algorithm>

#include "ops/length.hpp"

namespace polyphase::layers {
namespace {

/// Quotients of any sign, rounded down and up.
std::int64_t floor_div(std::int64_t numerator, std::int64_t denominator) {
  return numerator / denominator - (numerator % denominator < 0 ? 1 : 0);
}
std::int64_t ceil_div(std::int64_t numerator, std::int64_t denominator) { return -floor_div(-numerator, denominator); }

Tensor no_positions(const Tensor& x, std::int64_t channels) {
  return Tensor::empty({x.size(0), channels, 0}, {x.dtype(), x.device()});
}

Tensor without_first(const Tensor& x, std::int64_t count) { return x.narrow(2, count, x.size(2) - count); }

/// The number of positions at one end of a row that its padding is made from.
std::int64_t copied_positions(PaddingMode mode, std::int64_t padding) {
  if (padding == 0 || mode == PaddingMode::zeros) return 0;
  return mode == PaddingMode::reflect ? padding + 1 : 1;
}

}  // namespace

Conv1dStream::Conv1dStream(const Conv1d& conv)
    : conv_(conv), left_(conv.options().padding.left), right_(conv.options().padding.right) {
  window_ = conv.options().dilation * (conv.options().kernel_size - 1) + 1;
  if (conv.options().padding.is_same) {
    left_ = (window_ - 1) / 2;
    right_ = window_ - 1 - left_;
  }
}

Tensor Conv1dStream::with_left_padding(const Tensor& x, bool last) {
  if (has_begun_) return x;
  const PaddingMode mode = conv_.options().padding_mode;
  const Tensor beginning = beginning_.followed_by(x);
  if (beginning.size(2) < copied_positions(mode, left_) && !last) {
    beginning_.keep(beginning);
    return x.narrow(2, 0, 0);
  }
  has_begun_ = true;
  beginning_.clear();
  return left_ == 0 ? beginning : pad1d(beginning, {left_, 0}, mode);
}

Tensor Conv1dStream::with_right_padding(const Tensor& x, const Tensor& end) const {
  if (right_ == 0) return x;
  const PaddingMode mode = conv_.options().padding_mode;
  if (mode == PaddingMode::zeros) return pad1d(x, {0, right_});
  return cat({x, without_first(pad1d(end, {0, right_}, mode), end.size(2))}, 2);
}

Tensor Conv1dStream::push(const Tensor& x, bool last) {
  const Conv1d::Options& options = conv_.options();
  const std::int64_t copied = copied_positions(options.padding_mode, right_);
  const Tensor end = end_.followed_by(x);
  if (copied > 0) end_.keep(without_first(end, std::max<std::int64_t>(end.size(2) - copied, 0)));

  const Tensor next = with_left_padding(x, last);
  const Tensor padded = last ? with_right_padding(tail_.followed_by(next), end) : Tensor();
  const std::int64_t length = last ? padded.size(2) : tail_.size() + next.size(2), skipped = std::min(skipped_, length);
  const std::int64_t inputs = length - skipped, outputs = inputs < window_ ? 0 : (inputs - window_) / options.stride + 1;
  const std::int64_t used = std::min(outputs * options.stride, inputs);
  const Tensor all = without_first(last ? padded : tail_.advance(next, inputs - used), skipped);
  if (last) tail_.keep(without_first(all, used));
  skipped_ += outputs * options.stride - used - skipped;
  if (skipped != 0 || skipped_ != 0) note_new_state();
  if (outputs == 0) return no_positions(x, options.out_channels);
  return conv1d(all.narrow(2, 0, (outputs - 1) * options.stride + window_), conv_.weight(), conv_.bias(),
                {.stride = options.stride, .dilation = options.dilation, .groups = options.groups});
}

void Conv1dStream::reset() {
  has_begun_ = false;
  beginning_.clear();
  tail_.clear();
  end_.clear();
  skipped_ = 0;
}

Span Conv1dStream::inputs_of(Span outputs) const {
  const std::int64_t stride = conv_.options().stride;
  return {outputs.first * stride - left_, outputs.last * stride - left_ + window_ - 1};
}

ConvTranspose1dStream::ConvTranspose1dStream(const ConvTranspose1d& conv)
    : conv_(conv), reach_(conv.options().dilation * (conv.options().kernel_size - 1)) {}

std::int64_t ConvTranspose1dStream::output_length(std::int64_t inputs) const {
  const ConvTranspose1d::Options& options = conv_.options();
  return conv_transpose1d_length(inputs, options.kernel_size, options.stride, options.padding.left, options.padding.right,
                                 options.output_padding, options.dilation);
}

Tensor ConvTranspose1dStream::push(const Tensor& x, bool last) {
  const ConvTranspose1d::Options& options = conv_.options();
  const std::int64_t stride = options.stride, left = options.padding.left;
  const std::int64_t held = tail_.size() + x.size(2);
  count_on(inputs_, x.size(2));
  // Positions count from the first output before the padding is cropped. Later inputs only add to positions from inputs_*stride
  // on, and the row does not end before the current end.
  const std::int64_t complete = last ? output_length(inputs_) : std::min(inputs_ * stride - left, output_length(inputs_));
  const std::int64_t begin = returned_ + left, end = std::max(complete, returned_) + left;
  count_on(returned_, end - left - returned_);
  const std::int64_t first_input = inputs_ - held;
  // The next output's own input is always kept: perhaps no tap reaches it, and with output padding it may be the last one.
  const std::int64_t own = std::min(floor_div(end, stride), inputs_ - 1);
  const std::int64_t needed = std::max(std::min(ceil_div(end - reach_, stride), own), first_input);
  const Tensor all = tail_.advance(x, held - (needed - first_input));
  if (end == begin) return no_positions(x, options.out_channels);

  const std::int64_t origin = first_input * stride;
  const std::int64_t length = (all.size(2) - 1) * stride + reach_ + 1;  // of all positions to which `all` contributes
  return conv_transpose1d(all, conv_.weight(), conv_.bias(),
                          {.stride = stride,
                           .padding = {begin - origin, std::max<std::int64_t>(length - (end - origin), 0)},
                           .output_padding = std::max<std::int64_t>(end - origin - length, 0),
                           .dilation = options.dilation,
                           .groups = options.groups});
}

void ConvTranspose1dStream::reset() {
  tail_.clear();
  inputs_ = 0;
  returned_ = 0;
}

Span ConvTranspose1dStream::inputs_of(Span outputs) const {
  const std::int64_t stride = conv_.options().stride, left = conv_.options().padding.left;
  return {ceil_div(outputs.first + left - reach_, stride), floor_div(outputs.last + left, stride)};
}

}  // namespace polyphase::layers
