#pragma once
// The convolutions of EnCodec's encoder and decoder (facebookresearch/encodec@0e2d0ae:encodec/modules/conv.py). Internal.

#include <cstdint>
#include <optional>

#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/norm.hpp"

namespace polyphase::networks {

/// x (N, C, L) lengthened by reflection at both ends. A row that is too short for it is first lengthened by zeros at its end,
/// which are cut off again.
[[nodiscard]] Tensor reflect_padded(const Tensor& x, std::int64_t left, std::int64_t right);

/// SConv1d: (N, C_in, L) -> (N, C_out, ceil(L/stride)). With K = (kernel_size - 1)*dilation + 1 the row is reflected by K -
/// stride positions in all: on the left where causal, else half of them, rounded down, on the right. The right side also gets
/// what the last stride lacks. Children: conv.conv, and with `norm` conv.norm, a GroupNorm of one group.
class EncodecConv1d : public Module {
 public:
  struct Options {
    std::int64_t in_channels = 0, out_channels = 0, kernel_size = 0;
    std::int64_t stride = 1, dilation = 1;
    bool causal = true, norm = false;
  };
  explicit EncodecConv1d(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Throws NotImplemented with `norm`, whose statistics are of the whole length.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

  [[nodiscard]] std::int64_t stride() const { return conv_.options().stride; }
  [[nodiscard]] std::int64_t left() const { return left_; }
  /// The padding on the right of a row of `length` positions, and the most that any row has.
  [[nodiscard]] std::int64_t right(std::int64_t length) const;
  [[nodiscard]] std::int64_t most_right() const { return right_ + stride() - 1; }

 private:
  Conv1d conv_;
  std::optional<GroupNorm> norm_{};
  std::int64_t left_ = 0, right_ = 0;
};

/// SConvTranspose1d: (N, C_in, L) -> (N, C_out, L*stride). The convolution gives kernel_size - stride more positions. They are
/// cut off on the right where causal, else half of them, rounded down; the norm comes before that. Children: convtr.convtr, and
/// with `norm` convtr.norm.
class EncodecConvTranspose1d : public Module {
 public:
  struct Options {
    std::int64_t in_channels = 0, out_channels = 0, kernel_size = 0, stride = 1;
    bool causal = true, norm = false;
  };
  explicit EncodecConvTranspose1d(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Throws NotImplemented with `norm`, whose statistics are of the whole length.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  ConvTranspose1d conv_;
  std::optional<GroupNorm> norm_{};
  Padding cut_{0};  // after the norm
};

}  // namespace polyphase::networks
