#pragma once
// The two convolutions in a Stream: they keep the positions that the next outputs need, and sum an output in one pass, as
// without a stream. Internal.

#include <cstdint>

#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase::layers {

class Conv1dStream : public ModuleStream {
 public:
  explicit Conv1dStream(const Conv1d& conv);
  [[nodiscard]] Tensor push(const Tensor& x, bool last) override;
  void reset() override;
  [[nodiscard]] Span inputs_of(Span outputs) const override;
  [[nodiscard]] Rate rate() const override { return {1, conv_.options().stride}; }

 private:
  /// `x` with the row's left padding before it, once the padding is known; nothing until then.
  [[nodiscard]] Tensor with_left_padding(const Tensor& x, bool last);
  /// `x` followed by the right padding of a row that ends with `end`.
  [[nodiscard]] Tensor with_right_padding(const Tensor& x, const Tensor& end) const;

  const Conv1d& conv_;
  std::int64_t left_, right_;  // padding
  std::int64_t window_;        // positions from the first tap to the last
  bool has_begun_ = false;     // the left padding has been added
  HeldPositions beginning_;    // positions before that
  HeldPositions tail_;         // for the next outputs
  HeldPositions end_;          // what the right padding is made from
  std::int64_t skipped_ = 0;   // later positions that no output needs: a stride may be longer than the window
};

class ConvTranspose1dStream : public ModuleStream {
 public:
  explicit ConvTranspose1dStream(const ConvTranspose1d& conv);
  [[nodiscard]] Tensor push(const Tensor& x, bool last) override;
  void reset() override;
  [[nodiscard]] Span inputs_of(Span outputs) const override;
  [[nodiscard]] Rate rate() const override { return {conv_.options().stride, 1}; }

 private:
  /// L_out for so many input positions; may be negative.
  [[nodiscard]] std::int64_t output_length(std::int64_t inputs) const;

  const ConvTranspose1d& conv_;
  std::int64_t reach_;         // D*(K - 1)
  HeldPositions tail_;         // the last inputs that later outputs depend on
  std::int64_t inputs_ = 0;    // pushed so far
  std::int64_t returned_ = 0;  // outputs
};

}  // namespace polyphase::layers
