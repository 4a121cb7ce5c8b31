#pragma once
// Packs the weights as the preconverted kernel's operand.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPackThreads = 256;
inline constexpr int kPackFloats = 8192;  // weights in shared memory at a time

/// The weights that a block reads: blocks of 8 reduction channels (rows) x some other channels x some taps.
struct PackSteps {
  int others, taps;  // per block
  int row_blocks;    // blocks of 8 rows
  int other_blocks, tap_blocks;
  std::int64_t blocks;  // in all groups
};

[[nodiscard]] inline PackSteps make_pack_steps(const ConvProblem& problem, bool is_forward) {
  const std::int64_t rows = is_forward ? problem.C_in / problem.G : problem.C_out / problem.G;
  const std::int64_t others = is_forward ? problem.C_out / problem.G : problem.C_in / problem.G;
  PackSteps pack{};
  const auto pieces = [](std::int64_t size, std::int64_t piece) { return static_cast<int>((size + piece - 1) / piece); };
  pack.taps = static_cast<int>(problem.K < 512 ? problem.K : 512);
  const int most = kPackFloats / kPreconvertedRows / (pack.taps + 1);
  pack.others = most < 1 ? 1 : most < 32 ? most : 32;
  pack.row_blocks = pieces(rows, kPreconvertedRows);
  pack.other_blocks = pieces(others, pack.others);
  pack.tap_blocks = pieces(problem.K, pack.taps);
  pack.blocks = problem.G * pack.row_blocks * pack.other_blocks * static_cast<std::int64_t>(pack.tap_blocks);
  return pack;
}

/// Where the weights of one block of 8 rows, plane and window lie in `packed`, for all columns of a group, in vectors of 8
/// rows.
struct PackedRow {
  std::int64_t first;  // in column tile 0
  std::int64_t tile_step;
  __device__ PackedRow(const TapGemm& gemm, const PreconvertedTiling& tiling, int parts, int g, int row_block, int plane,
                       int window) {
    if (tiling.source.taps_apart) {
      plane += window * static_cast<int>(gemm.planes);
      window = 0;
    }
    const int row_step = row_block / kPreconvertedBlocks, plane_step = plane / tiling.planes, tap_step = window / tiling.taps;
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
__global__ void __launch_bounds__(kPackThreads)
    preconverted_pack_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ PreconvertedTiling tiling,
                             const __grid_constant__ PackSteps pack, const __grid_constant__ ConvProblem problem,
                             bool is_forward, const typename Operand::Source* __restrict__ w,
                             OperandHeader* __restrict__ header, unsigned char* __restrict__ packed) {
  using T = typename Operand::Source;
  __shared__ T memory[kPackFloats + 64];
  const auto out_per_group = static_cast<int>(problem.C_out / problem.G),
             in_per_group = static_cast<int>(problem.C_in / problem.G);
  std::uint32_t rest = blockIdx.x;
  const auto take = [&rest](int size) {
    const std::uint32_t above = rest / static_cast<std::uint32_t>(size),
                        digit = rest - above * static_cast<std::uint32_t>(size);
    rest = above;
    return static_cast<int>(digit);
  };
  const int k0 = take(pack.tap_blocks) * pack.taps, other0 = take(pack.other_blocks) * pack.others;
  const int row_block = take(pack.row_blocks), g = static_cast<int>(rest);
  const int row0 = row_block * kPreconvertedRows, K = static_cast<int>(problem.K);
  const int taps = min(pack.taps, K - k0), rows = min(kPreconvertedRows, static_cast<int>(gemm.rows) - row0);
  const int others = min(pack.others, (is_forward ? out_per_group : in_per_group) - other0);
  // Shared memory keeps the order of global memory (forward [row][other][tap], dgrad [other][row][tap]), with a row pitch that
  // spreads the banks.
  const int pitch = ((is_forward ? others : kPreconvertedRows) * taps) | 1;
  const int outer_count = is_forward ? rows : others, inner_count = (is_forward ? others : rows) * taps;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kWarps = kPackThreads / 32;
  const T* from = w + k0 +
                  (static_cast<std::int64_t>(g * in_per_group + (is_forward ? row0 : other0)) * out_per_group +
                   (is_forward ? other0 : row0)) *
                      K;
  for (int outer = warp; outer < outer_count; outer += kWarps) {
    const T* row = from + static_cast<std::int64_t>(outer) * out_per_group * K;
    constexpr int kBatch = 8;  // outstanding loads
    for (int first = lane; first < inner_count; first += 32 * kBatch) {
      T values[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int at = first + 32 * j;
        if (at < inner_count) values[j] = row[taps == K ? at : at / taps * K + at % taps];
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        if (first + 32 * j < inner_count) memory[outer * pitch + first + 32 * j] = values[j];
    }
  }
  __syncthreads();
  // A warp packs 32 columns of a plane and window at a time. In forward the classes of a channel are neighbouring columns.
  const auto classes = static_cast<int>(gemm.phase_classes);
  const bool by_class = is_forward && taps == K && classes <= K;
  const int chunks = by_class ? (taps + classes - 1) / classes * classes : taps;
  const int exponent = Operand::kScaled ? scale_exponent(header->largest, kWeightTarget) : 0;
  const SplitRange range(exponent);
  const float scale = power_of_two(exponent);
  std::uint32_t suspect_count = 0;
  for (int chunk = warp; chunk < chunks; chunk += kWarps) {
    const int j = (k0 + (by_class ? chunk / classes * classes : chunk)) / classes;
    int other = lane, k = chunk;
    if (by_class) {
      const int i = (chunk - j * classes) * 32 + lane;
      other = i / classes;
      k = j * classes + i - other * classes;
    }
    if (k >= taps || other >= others) continue;
    const int a = k0 + k - j * classes;
    const PackedRow to(gemm, tiling, Operand::kParts, g, row_block, is_forward ? 0 : a,
                       is_forward ? static_cast<int>(gemm.taps) - 1 - j : j);
    const int column = is_forward ? (other0 + other) * static_cast<int>(gemm.classes) + a : other0 + other;
    T values[kPreconvertedRows];
    const T* own = memory + (is_forward ? other * taps : other * pitch) + k;
    const int row_pitch = is_forward ? pitch : taps;
#pragma unroll
    for (int c = 0; c < kPreconvertedRows; ++c) values[c] = c < rows ? own[c * row_pitch] : T(0.0F);
    uint4 parts[Operand::kParts];
    const std::uint32_t own_suspect_count = make_operand<Operand>(values, scale, range, parts);
    suspect_count =
        ((suspect_count | own_suspect_count) & kNever) | ((suspect_count & ~kNever) + (own_suspect_count & ~kNever));
    const std::int64_t at = to.at(tiling, column), part_step = kPreconvertedBlocks * tiling.tile_columns;
#pragma unroll
    for (int part = 0; part < Operand::kParts; ++part) reinterpret_cast<uint4*>(packed)[at + part * part_step] = parts[part];
  }
  if (suspect_count != 0) add_suspect_count(&header->suspect_count, suspect_count);
}

}  // namespace polyphase::cuda::tensor_core
