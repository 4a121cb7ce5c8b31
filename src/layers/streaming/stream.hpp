#pragma once
// Runs networks on input that arrives piece by piece.
//
//     pp::Stream stream(net);
//     while (more) play(stream.push(next_frames));   // (N, C, n), any n >= 1
//     play(stream.finish());
//
// The results of push() and finish(), concatenated, are net(all frames), for any split of the frames: bit for bit on
// the CPU (but for tf32), and on both under a LengthInvariantGuard (conv/length_invariant.hpp); else within rounding, because
// the order of its sums depends on the length. A causal network returns the samples of a frame immediately. Other networks wait
// for the later frames that these samples depend on, `latency()` of them.

#include <cstdint>
#include <memory>

#include "../../layers/module.hpp"
#include "../../layers/streaming/module_stream.hpp"

namespace polyphase {

/// How many input positions an output depends on, before and after its own, which is floor(t*down/up).
struct ReceptiveField {
  std::int64_t left = 0;   ///< -ModuleStream::kAllBefore or more if the whole past counts
  std::int64_t right = 0;  ///< the latency of a Stream
  [[nodiscard]] bool is_causal() const { return right <= 0; }
};
/// Throws NotImplemented naming a module that cannot be streamed.
[[nodiscard]] ReceptiveField receptive_field(Module& network);

/// Feeds a network piece by piece. The network is used, not copied: it must outlive the stream and keep its weights. Gradients
/// are not recorded. The state has a fixed size, and so have the work and the memory of a push() of a fixed size.
class Stream {
 public:
  /// Throws NotImplemented naming a module that cannot be streamed (such as GroupNorm, whose statistics cover the whole
  /// length), or one that takes (N, L, C) outside a ChannelsLast.
  explicit Stream(Module& network);
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  /// Processes longer pieces `max_positions` at a time. Once such a piece has been pushed, and the latency and the context of
  /// attention (KeyValueRing) have passed, no push allocates device memory. Throws ShapeError unless max_positions >= 1.
  void reserve(std::int64_t max_positions);
  /// The next n >= 1 positions x (N, C, n), or indices (N, n) -> (N, C', m), m >= 0. N, C, dtype and device must not change.
  /// Throws Error after finish(), ShapeError, and the errors of the network; after an exception only reset() is allowed.
  [[nodiscard]] Tensor push(const Tensor& x);
  /// On a GPU, records pushes of one size as a CUDA graph (cuda::capture) and replays it: the same work, almost none of it on
  /// the host. Recording begins once three pushes of the same size have left the sizes of the state as they were: after the
  /// latency and the context of attention have passed. A push of another size runs as before and ends the recording. The result
  /// of a replayed push is overwritten by the next push. Noise that depends on the position (SNAC) and segments with volumes of
  /// their own (EnCodec at 48 kHz) are never recorded. On the CPU it does nothing. A push inside a cuda::capture() of the
  /// caller is not recorded by itself.
  void record_pushes(bool wanted = true);
  /// Whether the last push was replayed.
  [[nodiscard]] bool has_replayed() const { return has_replayed_; }
  /// Ends the stream and returns the remaining outputs (N, C', m), m >= 0. Throws Error if nothing was pushed.
  [[nodiscard]] Tensor finish();
  /// Resets for another stream, also of another N.
  void reset();

  /// The number of later positions that an output waits for.
  [[nodiscard]] std::int64_t latency() const;
  [[nodiscard]] Rate rate() const { return stream_->rate(); }

 private:
  struct Recording;
  [[nodiscard]] Tensor push_piece(const Tensor& x);
  [[nodiscard]] Tensor push_and_observe(const Tensor& x);

  std::unique_ptr<ModuleStream> stream_;
  std::unique_ptr<Recording> recording_;  // destroyed before what it refers to
  bool records_ = false, has_replayed_ = false;
  Shape last_shape_;        // of the last piece
  std::int64_t alike_ = 0;  // pushes in a row that had this shape and left the sizes of the state as they were
  std::int64_t max_positions_ = INT64_MAX;
  Tensor empty_;  // the input's shape with no positions; undefined before the first push
  bool is_finished_ = false;
};

}  // namespace polyphase
