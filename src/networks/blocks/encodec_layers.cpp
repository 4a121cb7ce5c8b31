#include "networks/blocks/encodec_layers.hpp"

#include <algorithm>

#include "layers/streaming/module_stream.hpp"
#include "ops/length.hpp"

namespace polyphase::networks {
namespace {

std::optional<GroupNorm> norm_of(bool wanted, std::int64_t channels) {
  if (!wanted) return std::nullopt;
  return GroupNorm({.num_groups = 1, .num_channels = channels});
}

[[noreturn]] void refuse_norm() {
  throw NotImplemented(
      "stream: expected EnCodec's convolutions without time_group_norm, whose statistics are of the whole length");
}

// The convolution's own stream, without padding, after the step that puts the reflected positions around the row.
class PaddedConvStream : public ModuleStream {
 public:
  PaddedConvStream(const EncodecConv1d& padding, Conv1d& conv)
      : padding_(padding), conv_(conv.make_stream()), unpadded_(conv.options()) {}

  [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
    layers::count_on(length_, x.size(2));
    if (has_begun_) return conv_->push(with_end(x, x, last), last);
    const Tensor all = beginning_.followed_by(x);
    const bool is_long_enough = length_ > std::max(padding_.left(), padding_.most_right());
    if (!is_long_enough && !last) {
      beginning_.keep(all);
      return conv_->push(x.narrow(2, 0, 0), false);
    }
    has_begun_ = true;
    beginning_.clear();
    if (!is_long_enough) return conv_->push(reflect_padded(all, padding_.left(), padding_.right(length_)), true);
    return conv_->push(with_end(reflect_padded(all, padding_.left(), 0), all, last), last);
  }

  void reset() override {
    conv_->reset();
    has_begun_ = false;
    length_ = 0;
    beginning_.clear();
    end_.clear();
  }

  [[nodiscard]] Span inputs_of(Span outputs) const override {
    const Span padded = conv_->inputs_of(outputs);
    return {padded.first - padding_.left(), padded.last - padding_.left()};
  }
  [[nodiscard]] Rate rate() const override { return conv_->rate(); }

 private:
  // `piece` and, at the row's end, its reflection after it. `x`: the positions of the row that are new.
  Tensor with_end(const Tensor& piece, const Tensor& x, bool last) {
    const std::int64_t most = padding_.most_right();
    if (most == 0) return piece;
    const Tensor end = end_.followed_by(x);
    const std::int64_t kept = std::min(end.size(2), most + 1);
    end_.keep(end.narrow(2, end.size(2) - kept, kept));
    const std::int64_t right = last ? padding_.right(length_) : 0;
    if (right == 0) return piece;
    const Tensor reflected = pad1d(end, {0, right}, PaddingMode::reflect).narrow(2, end.size(2), right);
    return cat({piece, reflected}, 2);
  }

  const EncodecConv1d& padding_;
  std::unique_ptr<ModuleStream> conv_;
  Conv1d::Options unpadded_;
  bool has_begun_ = false;
  std::int64_t length_ = 0;          // pushed so far
  layers::HeldPositions beginning_;  // before the left end can be reflected
  layers::HeldPositions end_;        // what the right end would be reflected from
};

}  // namespace

Tensor reflect_padded(const Tensor& x, std::int64_t left, std::int64_t right) {
  if (left == 0 && right == 0) return x;
  const std::int64_t missing = std::max<std::int64_t>(std::max(left, right) - x.size(-1) + 1, 0);
  const Tensor padded = pad1d(missing == 0 ? x : pad1d(x, {0, missing}), {left, right}, PaddingMode::reflect);
  return missing == 0 ? padded : padded.narrow(-1, 0, padded.size(-1) - missing);
}

EncodecConv1d::EncodecConv1d(const Options& options)
    : conv_({.in_channels = options.in_channels,
             .out_channels = options.out_channels,
             .kernel_size = options.kernel_size,
             .stride = options.stride,
             .dilation = options.dilation}),
      norm_(norm_of(options.norm, options.out_channels)) {
  const std::int64_t total = (options.kernel_size - 1) * options.dilation + 1 - options.stride;
  right_ = options.causal ? 0 : total / 2;
  left_ = total - right_;
}

void EncodecConv1d::visit(Visitor& visitor) {
  visitor.module("conv.conv", conv_);
  if (norm_) visitor.module("conv.norm", *norm_);
}

std::int64_t EncodecConv1d::right(std::int64_t length) const {
  const std::int64_t over = length % stride();
  return right_ + (over == 0 ? 0 : stride() - over);
}

Tensor EncodecConv1d::forward(const Tensor& x) {
  require<ShapeError>(x.rank() == 3 && x.size(2) >= 1, "EncodecConv1d: expected x (N, C, L >= 1), got ", x.shape());
  const Tensor y = conv_(reflect_padded(x, left_, right(x.size(2))));
  return norm_ ? (*norm_)(y) : y;
}

std::unique_ptr<ModuleStream> EncodecConv1d::make_stream() {
  if (norm_) refuse_norm();
  return std::make_unique<PaddedConvStream>(*this, conv_);
}

EncodecConvTranspose1d::EncodecConvTranspose1d(const Options& options)
    : conv_([&] {
        const std::int64_t total = options.kernel_size - options.stride, right = options.causal ? total : total / 2;
        return ConvTranspose1d({.in_channels = options.in_channels,
                                .out_channels = options.out_channels,
                                .kernel_size = options.kernel_size,
                                .stride = options.stride,
                                .padding = options.norm ? Padding(0) : Padding{total - right, right}});
      }()),
      norm_(norm_of(options.norm, options.out_channels)) {
  const std::int64_t total = options.kernel_size - options.stride, right = options.causal ? total : total / 2;
  if (options.norm) cut_ = {total - right, right};
}

void EncodecConvTranspose1d::visit(Visitor& visitor) {
  visitor.module("convtr.convtr", conv_);
  if (norm_) visitor.module("convtr.norm", *norm_);
}

Tensor EncodecConvTranspose1d::forward(const Tensor& x) {
  const Tensor y = conv_(x);
  if (!norm_) return y;
  return (*norm_)(y).narrow(2, cut_.left, y.size(2) - cut_.left - cut_.right);
}

std::unique_ptr<ModuleStream> EncodecConvTranspose1d::make_stream() {
  if (norm_) refuse_norm();
  return conv_.make_stream();
}

}  // namespace polyphase::networks
