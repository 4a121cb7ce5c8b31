#pragma once
// Elementwise iteration over strided tensors: one index space for all operands, with as few dimensions as possible. Internal to
// the library.

#include <array>
#include <cstdint>
#include <span>

#include "tensor/tensor.hpp"

namespace polyphase {

inline constexpr int kMaxOperands = 5;  ///< an output and up to four inputs

/// The index space of operand 0 (the output) and the other operands, which have its shape and their own strides. Sizes of 1 are
/// removed, dimensions that are contiguous in every operand are merged, and operand 0's strides descend.
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
  /// Whether the operand is contiguous over the whole index space.
  [[nodiscard]] bool is_flat(int operand) const;
  /// Whether the operand is one element, broadcast.
  [[nodiscard]] bool is_constant(int operand) const;
};

/// The loop over `out` and `inputs`, which must all have out's shape.
[[nodiscard]] Loop make_loop(const Tensor& out, std::span<const Tensor> inputs);

}  // namespace polyphase
