#pragma once
// Networks that take their input piece by piece.
//
//     pp::Stream stream(net);
//     while (more) play(stream.push(next_frames));   // (N, C, n), any n >= 1
//     play(stream.finish());
//
// What push() and finish() return, one after another, is net(all frames at once), however the frames are cut: on the CPU bit
// for bit; on a GPU within rounding, because its kernels add in an order that depends on the length. A causal network returns
// the samples of a frame at once; another waits for the frames to come that these samples depend on, `latency()` of them.

#include <cstdint>
#include <memory>

#include "../../layers/module.hpp"
#include "../../layers/streaming/module_stream.hpp"

namespace polyphase {

/// How far an output position looks, in input positions: before and behind its own, which is floor(t*down/up).
struct ReceptiveField {
  std::int64_t left = 0;   ///< -ModuleStream::kAllBefore and more where all the past counts
  std::int64_t right = 0;  ///< what a Stream waits for
  [[nodiscard]] bool is_causal() const { return right <= 0; }
};
/// Throws NotImplemented naming a module that cannot be streamed.
[[nodiscard]] ReceptiveField receptive_field(Module& network);

/// Feeds a network piece by piece. The network is used, not copied: it must live as long and keep its weights. Nothing is
/// recorded for gradients. State is of a fixed size, and so are the work and the memory of a push() of a fixed size.
class Stream {
 public:
  /// Throws NotImplemented naming a module that cannot be streamed (GroupNorm, whose statistics are of the whole length), or
  /// one that takes (N, L, C) and is in no ChannelsLast.
  explicit Stream(Module& network);

  /// Longer pieces are computed `max_positions` at a time. Once such a piece has been pushed, and the latency and the context
  /// of attention (KeyValueRing) have passed, no push allocates memory of the device. Throws ShapeError unless max_positions
  /// >= 1.
  void reserve(std::int64_t max_positions);
  /// The next n >= 1 positions x (N, C, n) -> (N, C', m), m >= 0; of indices also (N, n). N, C, dtype and device as at first.
  /// Throws Error after finish(), ShapeError, and what the network throws; after an exception only reset() helps.
  [[nodiscard]] Tensor push(const Tensor& x);
  /// Ends the stream and returns what is left, (N, C', m), m >= 0. Throws Error where nothing was pushed.
  [[nodiscard]] Tensor finish();
  /// Ready for another stream, of another N, too.
  void reset();

  /// Positions to come that an output waits for.
  [[nodiscard]] std::int64_t latency() const;
  [[nodiscard]] Rate rate() const { return stream_->rate(); }

 private:
  std::unique_ptr<ModuleStream> stream_;
  std::int64_t max_positions_ = INT64_MAX;
  Tensor empty_;  // of the input's shape with no positions; undefined before the first push
  bool is_finished_ = false;
};

}  // namespace polyphase
