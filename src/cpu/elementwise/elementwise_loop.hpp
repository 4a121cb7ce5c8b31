#pragma once
// How elementwise work iterates over the index space of tensor/loop.hpp: in pieces along the innermost dimension.

#include <array>
#include <cstdint>
#include <type_traits>

#include "tensor/loop.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// Elements that a thread needs at least: with fewer, starting it costs more than it gains.
inline constexpr std::int64_t kElementGrain = 32768;
/// Elements of the blocks into which strided operands are gathered and 16-bit types converted; they fit in L1.
inline constexpr std::int64_t kBlock = 512;

/// A position in a Loop's index space: the index in each dimension and each operand's element offset.
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

/// Copies `count` elements of `size` bytes (2, 4 or 8) of one operand, from flat position `flat` on, to `to`.
void gather_elements(const Loop& loop, int operand, const void* base, std::int64_t flat, std::int64_t count, std::size_t size,
                     void* to);
/// The reverse: copies `from`, contiguous, to the operand's places.
void scatter_elements(const Loop& loop, int operand, void* base, std::int64_t flat, std::int64_t count, std::size_t size,
                      const void* from);

/// Calls function(element) with the floating-point type of `dtype`.
template <class Function>
void dispatch_floating(DType dtype, const Function& function) {
  dispatch(dtype, [&](auto element) {
    if constexpr (!std::is_same_v<decltype(element), std::int64_t>) function(element);
  });
}

}  // namespace polyphase::cpu
