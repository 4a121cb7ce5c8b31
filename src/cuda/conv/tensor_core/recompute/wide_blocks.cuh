#pragma once
// Outputs that a kernel leaves to the wide kernel (wide.hpp), because its operands may have got them wrong: a list of single
// outputs, and blocks that have more of them.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWideColumns = 64;     // of a block
inline constexpr int kWidePositions = 128;  // of a block

inline constexpr std::int64_t kMostListed = 1 << 17, kListedOfBlock = 64;  // outputs; more mark their blocks

/// In global memory: words that are zeros at first, then the list.
struct WideBlocks {
  struct Words {
    std::uint32_t any;     ///< not 0 where something is left
    std::uint32_t listed;  ///< outputs that asked for a place in the list
    std::uint32_t marked;  ///< not 0 where a block is marked
    std::uint32_t unused;  ///< the list begins at a multiple of eight bytes
  };
  Words* words = nullptr;
  std::uint8_t* marks = nullptr;  ///< a byte for each block: position blocks the fastest, then column blocks, groups, samples
  std::int64_t* list = nullptr;   ///< ((n*G + g)*columns + column)*position_count + position - position_begin
  std::uint32_t list_size = 0;
  std::int64_t column_blocks = 0, position_blocks = 0;

#ifdef __CUDACC__
  [[nodiscard]] __device__ __forceinline__ std::int64_t block_of(const TapGemm& gemm, std::int64_t n, std::int64_t g,
                                                                 std::int64_t column, std::int64_t of_begin) const {
    return ((n * gemm.G + g) * column_blocks + column / kWideColumns) * position_blocks + of_begin / kWidePositions;
  }
  /// Leaves an output to the wide kernel, with `whole_block` its block. Outputs that do not exist are ignored.
  __device__ __forceinline__ void add(const TapGemm& gemm, std::int64_t n, std::int64_t g, std::int64_t column,
                                      std::int64_t position, bool whole_block) const {
    const std::int64_t of_begin = position - gemm.position_begin;
    if (n < 0 || column < 0 || of_begin < 0 || of_begin >= gemm.position_count) return;
    words->any = 1;
    // Most outputs come when the list is full: they would wait for each other at its counter.
    if (!whole_block && *static_cast<volatile std::uint32_t*>(&words->listed) < list_size) {
      const std::uint32_t place = atomicAdd(&words->listed, 1U);
      if (place < list_size) {
        list[place] = ((n * gemm.G + g) * gemm.columns + column) * gemm.position_count + of_begin;
        return;
      }
    }
    words->marked = 1;
    marks[block_of(gemm, n, g, column, of_begin)] = 1;
  }
#endif
};

}  // namespace polyphase::cuda::tensor_core
