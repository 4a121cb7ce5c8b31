#pragma once
// Turns partial sums in register order into weights. For few slices and many weights it works on blocks of 8 x 8 channels, so
// that both are read and written in runs.

#include <cstdint>

#include "cuda/conv/tensor_core/wgrad/mma_sync/kernel.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kMmaSumThreads = 256;
inline constexpr int kSumTaps = 32;    // per block, at most
inline constexpr int kFewSlices = 12;  // with more slices reduce_slices has more threads per weight

/// Blocks of a launch of mma_wgrad_sum_kernel.
[[nodiscard]] inline std::int64_t wgrad_sum_blocks(const MmaWgradTiling& tiling, std::int64_t groups, std::int64_t K) {
  const auto blocks = [](const MmaWgradSide& side) { return std::int64_t{side.blocks / side.planes}; };
  return groups * blocks(tiling.rows) * blocks(tiling.columns) * ((K + kSumTaps - 1) / kSumTaps);
}

/// The place of a tap's sums of 8 x 8 channels in a slice: two for each lane, 16 bytes apart.
template <class Operand, int kRowWarps, int kColumnWarps>
__device__ __forceinline__ std::int64_t sums_of_tap(const MmaWgradTiling& tiling, int group, int row_channels,
                                                    int column_channels, std::int64_t k) {
  constexpr int kThreads = kRowWarps * kColumnWarps * 32, kVectors = kMmaColumnsOfWarp<Operand> / 8;
  const auto shift = static_cast<int>(k / tiling.q), plane = static_cast<int>(k - std::int64_t{shift} * tiling.q);
  const int row_block = row_channels * tiling.rows.planes + (tiling.swapped ? plane : 0);
  const int column_block = column_channels * tiling.columns.planes + (tiling.swapped ? 0 : plane);
  const int shift_tile = shift / tiling.shifts_of_tile, row_tile = row_block / tiling.rows.tile;
  const int vector = column_block * tiling.shifts_of_tile + shift - shift_tile * tiling.shifts_of_tile;
  const int column_tile = vector / tiling.vectors_of_tile, own_vector = vector - column_tile * tiling.vectors_of_tile;
  const int own_row = row_block - row_tile * tiling.rows.tile;
  const int warp = own_vector / kVectors * kRowWarps + own_row / 8;
  const int quad = own_row % 8 / 2 * kVectors + own_vector % kVectors;
  const std::int64_t job =
      ((std::int64_t{group} * tiling.row_tiles + row_tile) * tiling.shift_tiles + shift_tile) * tiling.column_tiles +
      column_tile;
  return (job * (4 * kVectors) + quad) * (4 * kThreads) + warp * 128 + own_row % 2 * 2;
}

/// w = the slices of partial, added in order in f64.
template <class Operand, int kRowWarps, int kColumnWarps>
__global__ void __launch_bounds__(kMmaSumThreads)
    mma_wgrad_sum_kernel(const __grid_constant__ MmaWgradTiling tiling, std::int64_t K, const float* __restrict__ partial,
                         typename Operand::Source* __restrict__ w) {
  __shared__ float sums[8][8][kSumTaps + 1];  // (channel of x, of y, tap)
  const MmaWgradSide &x = tiling.swapped ? tiling.columns : tiling.rows, &y = tiling.swapped ? tiling.rows : tiling.columns;
  std::int64_t rest = blockIdx.x;
  const auto take = [&rest](std::int64_t size) {
    const std::int64_t above = rest / size, digit = rest - above * size;
    rest = above;
    return static_cast<int>(digit);
  };
  const std::int64_t first_tap = std::int64_t{take((K + kSumTaps - 1) / kSumTaps)} * kSumTaps;
  const int out_block = take(y.blocks / y.planes), in_block = take(x.blocks / x.planes), group = static_cast<int>(rest);
  const auto taps = static_cast<int>(min(K - first_tap, std::int64_t{kSumTaps}));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int tap = warp; tap < taps; tap += kMmaSumThreads / 32) {
    const float* from = partial + lane * 4 +
                        sums_of_tap<Operand, kRowWarps, kColumnWarps>(tiling, group, tiling.swapped ? out_block : in_block,
                                                                      tiling.swapped ? in_block : out_block, first_tap + tap);
    double first = 0, second = 0;
#pragma unroll 4
    for (std::int64_t slice = 0; slice < tiling.slices; ++slice, from += tiling.sums) {
      const float2 two = *reinterpret_cast<const float2*>(from);
      first += static_cast<double>(two.x);
      second += static_cast<double>(two.y);
    }
    const int row = lane / 4, column = 2 * (lane % 4);
    sums[tiling.swapped ? column : row][tiling.swapped ? row : column][tap] = static_cast<float>(first);
    sums[tiling.swapped ? column + 1 : row][tiling.swapped ? row : column + 1][tap] = static_cast<float>(second);
  }
  __syncthreads();
  const int in = min(8, x.channels - in_block * 8), out = min(8, y.channels - out_block * 8), run = out * taps;
  for (int i = static_cast<int>(threadIdx.x); i < in * run; i += kMmaSumThreads) {
    const int ci = i / run, co = (i - ci * run) / taps, tap = i - ci * run - co * taps;
    const std::int64_t row = std::int64_t{group} * x.channels + in_block * 8 + ci;
    w[(row * y.channels + out_block * 8 + co) * K + first_tap + tap] = static_cast<typename Operand::Source>(sums[ci][co][tap]);
  }
}

}  // namespace polyphase::cuda::tensor_core
