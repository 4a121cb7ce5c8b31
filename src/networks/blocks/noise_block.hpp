#pragma once
// SNAC's noise (hubertsiuzdak/snac@f49016a:snac/layers.py, NoiseBlock). Internal.

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/conv1d.hpp"

namespace polyphase {

/// The noise that a network's blocks share: block i has one row of it, the same for all channels and for the whole batch.
class NoiseSource {
 public:
  /// Normal numbers, each a function of the seed, the block and the position.
  void set_seed(std::uint64_t seed);
  void set_zero();
  /// Row i (1 or N, 1, samples) is for block i.
  void set_rows(std::vector<Tensor> rows);

  [[nodiscard]] bool is_zero() const { return kind_ == Kind::zero; }
  [[nodiscard]] bool is_seeded() const { return kind_ == Kind::seeded; }
  /// Positions first, ..., first + count - 1 of a block's row, (1 or N, 1, count) in x's dtype and on its device. Throws
  /// ShapeError where a given row does not fit x (N, C, count).
  [[nodiscard]] Tensor row(std::size_t block, std::int64_t first, std::int64_t count, const Tensor& x) const;

 private:
  enum class Kind : std::uint8_t { seeded, zero, given };
  Kind kind_ = Kind::seeded;
  std::uint64_t seed_ = 0;
  std::vector<Tensor> rows_;
};

/// x + noise * linear(x), x (N, C, L); linear is a 1x1 convolution without bias. While training seeded noise is new in each
/// call, from the thread's generator and for each sample of the batch, as the original does it.
class NoiseBlock : public Module {
 public:
  NoiseBlock(std::int64_t channels, std::size_t block, std::shared_ptr<const NoiseSource> source);
  void visit(Visitor& visitor) override { visitor.module("linear", linear_); }
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  class NoiseStream;
  [[nodiscard]] Tensor with_noise(const Tensor& x, std::int64_t first);

  Conv1d linear_;
  std::size_t block_;
  std::shared_ptr<const NoiseSource> source_;
};

}  // namespace polyphase
