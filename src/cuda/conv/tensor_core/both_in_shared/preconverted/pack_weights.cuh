#pragma once
// Packs the weights as the preconverted kernel's operand. Neighbouring threads read neighbouring weights; each writes the
// vectors of 8 rows of one tap and one other channel, which need no other thread.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedPackThreads = 128;

/// The order of threads: those of 8 reduction channels (rows) of a group take the weights of the other channels and taps in
/// their order in memory.
struct PackOrder {
  std::int64_t blocks;
  std::uint32_t others;
  FastDivide by_pieces, by_row_blocks, by_kernel;             // pieces of kPreconvertedPackThreads vectors of 8 rows
  FastDivide by_phase_classes, by_step_planes, by_step_taps;  // of TapGemm and PreconvertedTiling

  PackOrder(const TapGemm& gemm, const PreconvertedTiling& tiling, const ConvProblem& problem, bool is_forward)
      : others(static_cast<std::uint32_t>((is_forward ? problem.C_out : problem.C_in) / problem.G)) {
    const auto divide_by = [](std::int64_t size) { return FastDivide(static_cast<std::uint32_t>(size)); };
    const std::int64_t vectors = others * problem.K,
                       pieces = (vectors + kPreconvertedPackThreads - 1) / kPreconvertedPackThreads;
    const std::int64_t row_blocks = (gemm.rows + kPreconvertedRows - 1) / kPreconvertedRows;
    blocks = problem.G * row_blocks * pieces;
    by_pieces = divide_by(pieces);
    by_row_blocks = divide_by(row_blocks);
    by_kernel = divide_by(problem.K);
    by_phase_classes = divide_by(gemm.phase_classes);
    by_step_planes = divide_by(tiling.planes);
    by_step_taps = divide_by(tiling.taps);
  }
};

/// Where the weights of one block of 8 rows, plane and window lie in `packed`, for all columns of a group, in vectors of 8
/// rows.
struct PackedRow {
  std::int64_t first;  // in column tile 0
  std::int64_t tile_step;
  __device__ PackedRow(const TapGemm& gemm, const PreconvertedTiling& tiling, const PackOrder& order, int parts, int g,
                       int row_block, int plane, int window) {
    if (tiling.source.taps_apart) {
      plane += window * static_cast<int>(gemm.planes);
      window = 0;
    }
    const int row_step = row_block / kPreconvertedBlocks;
    const auto plane_step = static_cast<int>(order.by_step_planes.divide(static_cast<std::uint32_t>(plane)));
    const auto tap_step = static_cast<int>(order.by_step_taps.divide(static_cast<std::uint32_t>(window)));
    const std::int64_t step_size =
        static_cast<std::int64_t>(tiling.taps) * tiling.planes * parts * kPreconvertedBlocks * tiling.tile_columns;
    tile_step = tiling.count * step_size;
    const int step = (row_step * tiling.plane_steps + plane_step) * tiling.tap_steps + tap_step;
    const int in_step = ((window - tap_step * tiling.taps) * tiling.planes + plane - plane_step * tiling.planes) * parts;
    first = g * tiling.column_tiles * tile_step + step * step_size +
            static_cast<std::int64_t>(in_step * kPreconvertedBlocks + row_block % kPreconvertedBlocks) * tiling.tile_columns;
  }
  __device__ __forceinline__ std::int64_t at(const PreconvertedTiling& tiling, int column) const {
    const auto subtile = static_cast<int>(tiling.by_usable.divide(static_cast<std::uint32_t>(column)));
    const int own = column - subtile * tiling.usable, groups = tiling.tile_columns / kPreconvertedSubtile;  // 1 or 2
    return first + (subtile >> (groups - 1)) * tile_step + (subtile & (groups - 1)) * kPreconvertedSubtile + own;
  }
};

/// packed[group][column tile][step][tap][plane][part][block of rows][column][8 rows]. Places without a weight are not written.
template <class Operand>
__global__ void __launch_bounds__(kPreconvertedPackThreads)
    preconverted_pack_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ PreconvertedTiling tiling,
                             const __grid_constant__ PackOrder order, const __grid_constant__ ConvProblem problem,
                             bool is_forward, const typename Operand::Source* __restrict__ w,
                             OperandHeader* __restrict__ header, unsigned char* __restrict__ packed) {
  using T = typename Operand::Source;
  const std::uint32_t slab = order.by_pieces.divide(blockIdx.x);  // a group's block of rows
  const std::uint32_t vector = (blockIdx.x - slab * order.by_pieces.divisor) * kPreconvertedPackThreads + threadIdx.x;
  const std::uint32_t other = order.by_kernel.divide(vector);
  const bool exists = other < order.others;
  const auto k = static_cast<int>(vector - other * order.by_kernel.divisor);
  const auto g = static_cast<int>(order.by_row_blocks.divide(slab));
  const int row_block = static_cast<int>(slab) - g * static_cast<int>(order.by_row_blocks.divisor);
  const int row0 = row_block * kPreconvertedRows, rows = exists ? static_cast<int>(gemm.rows) - row0 : 0;
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const std::int64_t ci = g * in_per_group + (is_forward ? row0 : other), co = is_forward ? other : row0;
  const std::int64_t row_pitch = is_forward ? out_per_group * problem.K : problem.K;
  const T* from = w + (ci * out_per_group + co) * problem.K + k;
  T values[kPreconvertedRows];
#pragma unroll
  for (int c = 0; c < kPreconvertedRows; ++c) values[c] = c < rows ? from[c * row_pitch] : T(0.0F);
  const auto j = static_cast<int>(order.by_phase_classes.divide(static_cast<std::uint32_t>(k)));
  const int a = k - j * static_cast<int>(gemm.phase_classes);
  const PackedRow to(gemm, tiling, order, Operand::kParts, g, row_block, is_forward ? 0 : a,
                     is_forward ? static_cast<int>(gemm.taps) - 1 - j : j);
  const int column = is_forward ? static_cast<int>(other * gemm.classes) + a : static_cast<int>(other);
  const int exponent = Operand::kScaled ? scale_exponent(header->largest, kWeightTarget) : 0;
  uint4 parts[Operand::kParts];
  const std::uint32_t suspect_count = make_operand<Operand>(values, power_of_two(exponent), SplitRange(exponent), parts);
  if (exists) {
    const std::int64_t at = to.at(tiling, column), part_step = kPreconvertedBlocks * tiling.tile_columns;
#pragma unroll
    for (int part = 0; part < Operand::kParts; ++part) reinterpret_cast<uint4*>(packed)[at + part * part_step] = parts[part];
  }
  if (__any_sync(0xffffffffU, suspect_count != 0) != 0) {  // one atomic for a warp
    const std::uint32_t never = __reduce_or_sync(0xffffffffU, suspect_count & kNever);
    const std::uint32_t small = __reduce_add_sync(0xffffffffU, suspect_count & ~kNever);
    if (threadIdx.x % 32 == 0) add_suspect_count(&header->suspect_count, never | small);
    if (exists) add_small_weights(header, suspect_count);
  }
}

}  // namespace polyphase::cuda::tensor_core
