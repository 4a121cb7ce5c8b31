#pragma once
// A module's state in a Stream (layers/streaming/stream.hpp): takes its input piece by piece and returns outputs as soon as
// they are determined.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "../../tensor/tensor.hpp"

namespace polyphase {

class Module;

/// Positions first, ..., last along the length.
struct Span {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Output positions for each input position: up/down.
struct Rate {
  std::int64_t up = 1;
  std::int64_t down = 1;
};

/// The state of one module in a Stream. A user's module returns one from make_stream().
class ModuleStream {
 public:
  /// The order of dimensions that the module's forward() takes: (N, C, L), (N, L, C), or any.
  enum class Layout : std::uint8_t { any, channels_first, channels_last };
  /// A position before all others: `first` of modules that depend on the whole past (an LSTM).
  static constexpr std::int64_t kAllBefore = INT64_MIN / 4;

  virtual ~ModuleStream() = default;
  /// Takes the next n >= 0 positions x (N, C, n). Returns the outputs (N, C', m), m >= 0, that no later position changes and
  /// that were not returned before. `last`: no input follows; returns all remaining outputs.
  [[nodiscard]] virtual Tensor push(const Tensor& x, bool last) = 0;
  /// Resets to the state before the first push().
  virtual void reset() = 0;
  /// The input positions that outputs depend on; they may be before 0 or past the end, where the padding is.
  [[nodiscard]] virtual Span inputs_of(Span outputs) const = 0;
  [[nodiscard]] virtual Rate rate() const = 0;
  /// Outputs so many positions apart depend on inputs that lie alike around theirs: a multiple of rate().up, larger where
  /// positions are cut into windows.
  [[nodiscard]] virtual std::int64_t period() const { return rate().up; }
  /// push() has the length last whatever it is.
  [[nodiscard]] virtual Layout layout() const { return Layout::channels_first; }
};

namespace layers {

/// The class name of a module in messages.
[[nodiscard]] std::string type_name(const Module& module);
/// The same without namespaces, such as "Conv1d".
[[nodiscard]] std::string short_type_name(const Module& module);
/// The layout of a module's place in a network; `place` is the layout before the module was considered. Throws NotImplemented
/// naming the module if its layout is the other one.
[[nodiscard]] ModuleStream::Layout joined(ModuleStream::Layout place, const ModuleStream& stream, const Module& module);

/// (N, ..., L) as a view (N, L, ...), and back.
[[nodiscard]] Tensor length_second(const Tensor& x);
[[nodiscard]] Tensor length_last(const Tensor& x);

/// What a push changes on the host. A push that is recorded once and replayed (Stream::record_pushes) runs no code of the host,
/// so counters go on by count_on(), and note_new_state() says that the next push will not be like this one.
void count_on(std::int64_t& counter, std::int64_t count);
void note_new_state();
/// How often the calling thread has noted it.
[[nodiscard]] std::uint64_t new_states();

/// Positions that a stream keeps between two pushes, (N, C, n), or (A, B, n, ...) in general.
class HeldPositions {
 public:
  [[nodiscard]] bool is_empty() const { return !kept_.defined() || kept_.size(2) == 0; }
  [[nodiscard]] std::int64_t size() const { return kept_.defined() ? kept_.size(2) : 0; }
  /// The kept positions followed by `x`.
  [[nodiscard]] Tensor followed_by(const Tensor& x) const;
  /// Throws ShapeError unless x can follow what is kept.
  void require_like(const Tensor& x) const;
  /// followed_by(x), of which the last `kept` positions are then kept: one launch if it held as many before.
  [[nodiscard]] Tensor advance(const Tensor& x, std::int64_t kept);
  /// Keeps a copy of `x`, in place if it has the size of the previous one, so that a push of a fixed size can be recorded once
  /// (cuda::capture) and replayed.
  void keep(const Tensor& x);
  void clear() { kept_ = {}; }

 private:
  Tensor kept_;
};

/// The stream of a module whose output positions each depend on the same input position alone. Inputs are (N, ..., n),
/// including indices (N, n); outputs are (N, ..., n).
class PointwiseStream : public ModuleStream {
 public:
  struct Options {
    Layout layout = Layout::any;
    bool only_in_eval = false;  ///< push() throws Error in training mode
  };
  explicit PointwiseStream(Module& module) : PointwiseStream(module, Options{}) {}
  PointwiseStream(Module& module, const Options& options) : module_(module), options_(options) {}
  [[nodiscard]] Tensor push(const Tensor& x, bool last) override;
  void reset() override {}
  [[nodiscard]] Span inputs_of(Span outputs) const override { return outputs; }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] Layout layout() const override { return options_.layout; }

 private:
  Module& module_;
  Options options_;
};

/// The layout of a module of (N, C, L) or (N, L, C) whose channels are in dimension `dim`; nothing if that is neither.
[[nodiscard]] std::optional<ModuleStream::Layout> layout_of_channels(int dim);

/// The stream of a module with `up` outputs per input that depend on `left` inputs before and `right` inputs after it, and that
/// pads the ends itself. It gets its input with that many neighbours, and the outputs that the cuts change are dropped.
class NeighbourStream : public ModuleStream {
 public:
  struct Options {
    std::int64_t left = 0;
    std::int64_t right = 0;
    std::int64_t up = 1;
    std::int64_t channel_divisor = 1;  ///< input channels per output channel
  };
  NeighbourStream(Module& module, const Options& options) : module_(module), options_(options) {}
  [[nodiscard]] Tensor push(const Tensor& x, bool last) override;
  void reset() override;
  [[nodiscard]] Span inputs_of(Span outputs) const override;
  [[nodiscard]] Rate rate() const override { return {options_.up, 1}; }

 private:
  Module& module_;
  Options options_;
  HeldPositions held_;
  std::int64_t done_ = 0;  // number of held positions whose outputs were returned
};

}  // namespace layers
}  // namespace polyphase
