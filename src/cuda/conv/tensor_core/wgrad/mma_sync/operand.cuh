#pragma once
// Converts x and y to the operands of the weight gradient on mma.sync: MmaWgradSide.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWgradOperandThreads = 256;
inline constexpr int kWgradOperandItems = 4;  // per thread: 8 channels of a plane at a position

/// The start of a piece on the line of positions.
struct MmaWgradPiece {
  std::int64_t sample;   // of its first position
  std::uint32_t within;  // position in that sample
  std::int64_t N, G;     // of the problem
};

[[nodiscard]] inline std::int64_t wgrad_operand_pieces(const MmaWgradSide& side, std::int64_t places) {
  constexpr std::int64_t kItems = std::int64_t{kWgradOperandThreads} * kWgradOperandItems;
  return (places * side.planes + kItems - 1) / kItems;
}
/// Blocks of a launch of mma_wgrad_operand_kernel.
[[nodiscard]] inline std::int64_t wgrad_operand_blocks(const MmaWgradSide& side, std::int64_t groups, std::int64_t places) {
  return groups * (side.blocks / side.planes) * wgrad_operand_pieces(side, places);
}

/// What recompute has to know of a thread's numbers.
struct MmaWgradRange {
  __half2 most = __float2half2_rn(0.0F);  // the largest halves; NaN stays
  std::uint32_t small = 0;                // count of numbers below the normal halves; zeros are exact and do not count

  /// Reports it for a warp. A stale value of scales->most costs only time.
  __device__ __forceinline__ void report(WgradScales* scales) const {
    const float2 both = __half22float2(most);
    const std::uint32_t of_warp = __reduce_max_sync(0xffffffffU, max(__float_as_uint(both.x), __float_as_uint(both.y)));
    const std::uint32_t all_small = __reduce_add_sync(0xffffffffU, small);
    if (threadIdx.x % 32 != 0) return;
    if (of_warp > scales->most) atomicMax(&scales->most, of_warp);
    if (all_small != 0) atomicAdd(&scales->small, SmallCount{all_small});
  }
};

/// Converts eight scaled numbers to the 16 bytes of each part.
template <int kParts>
__device__ __forceinline__ void split_numbers(const float (&v)[kPreconvertedRows], float scale, MmaWgradRange& range,
                                              uint4 (&parts)[kParts]) {
  std::uint32_t words[kParts][4];
  __half2 least = __float2half2_rn(1.0F);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
    const __half2 high = __floats2half2_rn(a, b), magnitude = __habs2(high);
    words[0][i] = *reinterpret_cast<const std::uint32_t*>(&high);
    range.most = __hmax2_nan(range.most, magnitude);
    least = __hmin2(least, magnitude);
    if constexpr (kParts == 2) words[1][i] = low_parts(a, b, high);
  }
  const float2 smallest = __half22float2(least);
  if (fminf(smallest.x, smallest.y) <= kLeastNormalHalf) {
#pragma unroll
    for (int c = 0; c < kPreconvertedRows; ++c) range.small += v[c] != 0.0F && fabsf(v[c] * scale) < kLeastNormalHalf ? 1U : 0U;
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    parts[part] = make_uint4(words[part][0], words[part][1], words[part][2], words[part][3]);
}

/// operand = the places of a piece of one side. `largest`: of x or y, null if numbers are not scaled.
template <class Operand>
__global__ void __launch_bounds__(kWgradOperandThreads)
    mma_wgrad_operand_kernel(const __grid_constant__ MmaWgradSide side, const __grid_constant__ MmaWgradPiece piece,
                             FastDivide by_pitch, std::uint32_t pieces, std::uint32_t places,
                             const typename Operand::Source* __restrict__ source, const std::uint32_t* __restrict__ largest,
                             WgradScales* scales, uint4* __restrict__ operand) {
  using T = typename Operand::Source;
  const int exponent = Operand::kScaled ? scale_exponent(largest_of(largest), kSourceTarget) : 0;
  const float scale = power_of_two(exponent);
  const std::uint32_t above = blockIdx.x / pieces, part_of_line = blockIdx.x - above * pieces;
  const std::uint32_t g = side.by_blocks.divide(above), channel_block = above - g * side.by_blocks.divisor;
  const std::uint32_t items = places * side.by_planes.divisor;
  const int channel = static_cast<int>(channel_block) * kPreconvertedRows, channels = side.channels - channel;
  MmaWgradRange range;
#pragma unroll
  for (int i = 0; i < kWgradOperandItems; ++i) {
    // Neighbouring threads take neighbouring elements of a row; with a stride these are in different planes.
    const std::uint32_t item = (part_of_line * kWgradOperandItems + i) * kWgradOperandThreads + threadIdx.x;
    if (item >= items) break;
    const std::uint32_t place = side.by_planes.divide(item), plane = item - place * side.by_planes.divisor;
    const std::uint32_t along = piece.within + place, later = by_pitch.divide(along);
    const std::int64_t n = piece.sample + later;
    const std::int64_t e = side.start + side.step * (along - later * by_pitch.divisor) + side.plane_step * plane;
    const bool exists = n < piece.N && e >= 0 && e < side.length;
    const T* from = source + ((n * piece.G + g) * side.channels + channel) * side.length + e;
    T values[kPreconvertedRows];
#pragma unroll
    for (int c = 0; c < kPreconvertedRows; ++c) values[c] = exists && c < channels ? from[c * side.length] : T(0.0F);
    uint4 parts[Operand::kParts];
    if constexpr (Operand::kScaled)
      split_numbers(values, scale, range, parts);
    else
      make_operand<Operand>(values, scale, SplitRange(0), parts);
    uint4* to =
        operand +
        ((static_cast<std::int64_t>(g) * side.blocks + channel_block * side.by_planes.divisor + plane) * Operand::kParts) *
            places +
        place;
#pragma unroll
    for (int part = 0; part < Operand::kParts; ++part) to[static_cast<std::int64_t>(part) * places] = parts[part];
  }
  if constexpr (Operand::kScaled) range.report(scales);
}

}  // namespace polyphase::cuda::tensor_core
