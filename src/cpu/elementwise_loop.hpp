#pragma once
// How elementwise work walks over strided tensors: one index space for all operands, with as few dimensions as possible, cut
// into pieces along the innermost one.

#include <array>
#include <cstdint>
#include <span>

#include "tensor/tensor.hpp"

namespace polyphase::cpu {

inline constexpr int kMaxOperands = 5;  ///< an output and up to four inputs
/// Elements a thread should at least get: below this, starting it costs more than it gains.
inline constexpr std::int64_t kElementGrain = 32768;
/// Elements of the blocks in which strided operands are brought together and halves converted; they fit the first-level cache.
inline constexpr std::int64_t kBlock = 512;

/// The index space of operand 0 (the output) and the others, which have its shape and their own strides. Sizes of 1 are
/// dropped, dimensions that follow each other in memory in every operand are merged, operand 0's strides descend.
struct Loop {
  int rank = 1;
  int operands = 0;
  std::int64_t count = 0;
  std::array<std::int64_t, kMaxRank> sizes{};
  std::array<std::array<std::int64_t, kMaxRank>, kMaxOperands> strides{};  // (operand, dimension), in elements

  [[nodiscard]] std::int64_t inner_size() const { return sizes[static_cast<std::size_t>(rank - 1)]; }
  [[nodiscard]] std::int64_t inner_stride(int operand) const {
    return strides[static_cast<std::size_t>(operand)][static_cast<std::size_t>(rank - 1)];
  }
  /// True where the operand's elements follow each other over the whole index space.
  [[nodiscard]] bool is_flat(int operand) const;
  /// True where the operand is one element, broadcast.
  [[nodiscard]] bool is_constant(int operand) const;
};

/// The loop over `out` and `inputs`, which all have out's shape.
[[nodiscard]] Loop make_loop(const Tensor& out, std::span<const Tensor> inputs);

/// A place in a Loop's index space: the index in each dimension and each operand's element offset.
class LoopPosition {
 public:
  LoopPosition(const Loop& loop, std::int64_t flat);
  [[nodiscard]] std::int64_t offset(int operand) const { return offsets_[static_cast<std::size_t>(operand)]; }
  /// Elements to the end of the innermost row.
  [[nodiscard]] std::int64_t left_in_row() const {
    return loop_.inner_size() - index_[static_cast<std::size_t>(loop_.rank - 1)];
  }
  /// Moves on by `count` <= left_in_row().
  void advance(std::int64_t count);

 private:
  const Loop& loop_;
  std::array<std::int64_t, kMaxRank> index_{};
  std::array<std::int64_t, kMaxOperands> offsets_{};
};

/// `count` elements of `size` bytes (2, 4 or 8) of one operand, from flat position `flat` on, into `to`.
void gather_elements(const Loop& loop, int operand, const void* base, std::int64_t flat, std::int64_t count, std::size_t size,
                     void* to);
/// The other way: `from`, contiguous, to the operand's places.
void scatter_elements(const Loop& loop, int operand, void* base, std::int64_t flat, std::int64_t count, std::size_t size,
                      const void* from);

}  // namespace polyphase::cpu
