#pragma once
// How elementwise work sees strided tensors: one index space for all operands, with as few dimensions as possible. Internal to
// the library.

#include <array>
#include <cstdint>
#include <span>

#include "tensor/tensor.hpp"

namespace polyphase {

inline constexpr int kMaxOperands = 5;  ///< an output and up to four inputs

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

}  // namespace polyphase
