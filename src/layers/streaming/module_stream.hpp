#pragma once
// What a module does in a Stream (layers/streaming/stream.hpp): takes its input piece by piece and returns outputs as soon as
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

/// The state of one module in a Stream. A module of one's own returns one from make_stream().
class ModuleStream {
 public:
  /// The order of dimensions that the module's forward() takes: (N, C, L), (N, L, C), or any.
  enum class Layout : std::uint8_t { any, channels_first, channels_last };
  /// A position before every other: what depends on all that came before has it as `first` (an LSTM).
  static constexpr std::int64_t kAllBefore = INT64_MIN / 4;

  virtual ~ModuleStream() = default;
  /// Takes the next n >= 0 positions x (N, C, n) and returns the outputs (N, C', m), m >= 0, that no later position changes and
  /// that were not returned before. `last`: nothing follows; returns all that is left.
  [[nodiscard]] virtual Tensor push(const Tensor& x, bool last) = 0;
  /// Back to the state before the first push().
  virtual void reset() = 0;
  /// The input positions that outputs depend on; they may lie before 0 or past the end, where padding is.
  [[nodiscard]] virtual Span inputs_of(Span outputs) const = 0;
  [[nodiscard]] virtual Rate rate() const = 0;
  /// Outputs so many positions apart depend on inputs that lie alike around theirs: a multiple of rate().up, larger where
  /// positions are cut into windows.
  [[nodiscard]] virtual std::int64_t period() const { return rate().up; }
  /// push() has the length last whatever it is.
  [[nodiscard]] virtual Layout layout() const { return Layout::channels_first; }
};

namespace layers {

/// The name of a module's class, as messages have it.
[[nodiscard]] std::string type_name(const Module& module);
/// The layout of a module's place in a network, `place` before it was known what the module takes. Throws NotImplemented naming
/// the module where its layout is the other.
[[nodiscard]] ModuleStream::Layout joined(ModuleStream::Layout place, const ModuleStream& stream, const Module& module);

/// (N, ..., L) as a view (N, L, ...), and back.
[[nodiscard]] Tensor length_second(const Tensor& x);
[[nodiscard]] Tensor length_last(const Tensor& x);

/// Positions that a stream keeps between two pushes, (N, C, n); anything (A, B, n, ...) goes.
class HeldPositions {
 public:
  [[nodiscard]] bool is_empty() const { return !kept_.defined() || kept_.size(2) == 0; }
  [[nodiscard]] std::int64_t size() const { return kept_.defined() ? kept_.size(2) : 0; }
  /// The kept positions and `x` behind them.
  [[nodiscard]] Tensor followed_by(const Tensor& x) const;
  /// Keeps a copy of `x`; in place where it has the size of what was kept, so that a push of a fixed size can be recorded once
  /// (cuda::capture) and replayed.
  void keep(const Tensor& x);
  void clear() { kept_ = {}; }

 private:
  Tensor kept_;
};

/// A stream of a module each of whose output positions depends on the input position of its number alone. Inputs are
/// (N, ..., n), indices (N, n) too, and outputs (N, ..., n).
class PointwiseStream : public ModuleStream {
 public:
  struct Options {
    Layout layout = Layout::any;
    bool only_in_eval = false;  ///< push() throws Error while the module is training
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

/// The layout of a module of positions (N, C, L) or (N, L, C) whose channels are in dimension `dim`; nothing where that is none
/// of the two.
[[nodiscard]] std::optional<ModuleStream::Layout> layout_of_channels(int dim);

/// A stream of a module that has `up` outputs for each input, which depend on `left` inputs before theirs and `right` behind
/// it, and which itself knows what to put past the ends: it is given its input with so much around it, and what that changes at
/// the cuts is dropped.
class NeighbourStream : public ModuleStream {
 public:
  struct Options {
    std::int64_t left = 0;
    std::int64_t right = 0;
    std::int64_t up = 1;
    std::int64_t channel_divisor = 1;  ///< channels of the input for one of the output
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
  std::int64_t done_ = 0;  // of the held positions, those whose outputs were returned
};

}  // namespace layers
}  // namespace polyphase
