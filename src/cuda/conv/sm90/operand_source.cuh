#pragma once
// A whole tensor as an operand of wgmma in global memory, converted once: SourceForm.
//
// Every tap, dilation, plane and alignment is then a start address that is a multiple of 16 bytes, and padding is zeros that
// are there: the kernel that multiplies copies runs of bytes.

#include <cstdint>

#include "cuda/conv/sm90/operand.cuh"
#include "cuda/conv/sm90/tensor_core_wide_steps.hpp"

namespace polyphase::cuda::tensor_core {

/// 16-bit operands. ScaledHalf is Precision::tf32 of numbers that fit: an f16 has tf32's mantissa, and half its bytes.
template <class T_, ptx::Tensor kType_, int kParts_, bool kScaled_>
struct WideOperand {
  using Source = T_;
  static constexpr ptx::Tensor kType = kType_;
  static constexpr int kParts = kParts_;
  static constexpr bool kScaled = kScaled_;  ///< multiplied by a power of two, so that a half holds it
  static constexpr bool kSplit = kParts_ == 2;
};
using WideSplit = WideOperand<float, ptx::Tensor::f16, 2, true>;
using WideScaled = WideOperand<float, ptx::Tensor::f16, 1, true>;
using WideHalf = WideOperand<__half, ptx::Tensor::f16, 1, false>;
using WideBrain = WideOperand<__nv_bfloat16, ptx::Tensor::bf16, 1, false>;

/// What lies before an operand in memory.
struct OperandHeader {
  std::uint32_t largest;   ///< magnitude of the tensor, or of a sample of it, as float bits
  std::uint32_t faults;    ///< of the weights: as make_operand counts them
  std::uint32_t repaired;  ///< outputs computed again
  std::uint32_t unused[61];
};
static_assert(sizeof(OperandHeader) == kOperandHeaderBytes);

/// How many numbers are too small to be split to 2^-22 of themselves, and kNever where one has no operand at all: beyond the
/// largest half, or, of any type, infinite or NaN, which a zero beside it would turn into NaN.
inline constexpr std::uint32_t kNever = 0x80000000U;

/// Eight numbers as the 16 bytes of each part; their faults.
template <class Operand>
__device__ __forceinline__ std::uint32_t make_operand(const typename Operand::Source (&v)[kWideRows], float scale,
                                                      const SplitRange& range, uint4 (&parts)[Operand::kParts]) {
  std::uint32_t faults = 0;
  std::uint32_t word[Operand::kParts][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Operand::kScaled) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const Split split = range.of(v[2 * i + c]);
        faults = split == Split::never ? faults | kNever : faults + (split == Split::small ? 1U : 0U);
      }
      const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
      const __half2 high = __floats2half2_rn(a, b);
      word[0][i] = *reinterpret_cast<const std::uint32_t*>(&high);
      if constexpr (Operand::kSplit) {
        const float2 back = __half22float2(high);
        const __half2 low = __floats2half2_rn((a - back.x) * kLowScale, (b - back.y) * kLowScale);
        word[1][i] = *reinterpret_cast<const std::uint32_t*>(&low);
      }
    } else {
      const auto low = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&v[2 * i]));
      const auto high = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&v[2 * i + 1]));
      constexpr std::uint32_t kInfinity = Operand::kType == ptx::Tensor::f16 ? 0x7c00U : 0x7f80U;
      if ((low & 0x7fffU) >= kInfinity || (high & 0x7fffU) >= kInfinity) faults = kNever;
      word[0][i] = low | high << 16;
    }
  }
#pragma unroll
  for (int part = 0; part < Operand::kParts; ++part)
    parts[part] = make_uint4(word[part][0], word[part][1], word[part][2], word[part][3]);
  return faults;
}

__device__ __forceinline__ void add_faults(std::uint32_t* to, std::uint32_t faults) {
  if ((faults & ~kNever) != 0) atomicAdd(to, faults & ~kNever);  // of integers: the order does not matter
  if ((faults & kNever) != 0) atomicOr(to, kNever);
}

inline constexpr int kLargestThreads = 256, kLargestBatch = 8;
inline constexpr std::int64_t kLargestSample = 65536;  // elements of a source that its scale is found from

/// Blocks of a launch of largest_kernel over `count` numbers.
[[nodiscard]] inline std::int64_t largest_blocks(std::int64_t count) {
  const std::int64_t all = (count + kLargestThreads * kLargestBatch - 1) / (kLargestThreads * kLargestBatch);
  return all < 1024 ? all : 1024;
}

/// header->largest = the largest finite magnitude of values[i * step], i < count.
__global__ void __launch_bounds__(kLargestThreads) largest_kernel(const float* __restrict__ values, std::int64_t count,
                                                                  std::int64_t step, OperandHeader* __restrict__ header) {
  __shared__ std::uint32_t of_warp[kLargestThreads / 32];
  std::uint32_t most = 0;
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(kLargestThreads * kLargestBatch) + threadIdx.x;
       first < count; first += static_cast<std::int64_t>(gridDim.x) * (kLargestThreads * kLargestBatch)) {
    float v[kLargestBatch];
#pragma unroll
    for (int i = 0; i < kLargestBatch; ++i) {
      const std::int64_t at = first + i * kLargestThreads;
      v[i] = at < count ? values[at * step] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kLargestBatch; ++i) {
      const std::uint32_t magnitude = __float_as_uint(v[i]) & 0x7fffffffU;
      if (magnitude < 0x7f800000U) most = max(most, magnitude);
    }
  }
  most = __reduce_max_sync(0xffffffffU, most);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  most = __reduce_max_sync(0xffffffffU, threadIdx.x < kLargestThreads / 32 ? of_warp[threadIdx.x] : 0U);
  if (threadIdx.x == 0) atomicMax(&header->largest, most);  // of integers: the order does not matter
}

inline constexpr int kSourceThreads = 256;

/// Blocks of a launch of source_kernel.
[[nodiscard]] inline std::int64_t source_blocks(const TapGemm& form, const SourceForm& to) {
  return form.G * to.row_steps * kWideBlocks * ((to.items() + kSourceThreads - 1) / kSourceThreads);
}

/// operand = the source, scaled by what header->largest asks for; flags[group][position / kFlagPositions] += the faults there
/// (null: they do not matter).
template <class Operand>
__global__ void __launch_bounds__(kSourceThreads)
    source_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ SourceForm to,
                  const typename Operand::Source* __restrict__ source, const OperandHeader* __restrict__ header,
                  std::uint32_t* __restrict__ flags, unsigned char* __restrict__ operand) {
  using T = typename Operand::Source;
  const int exponent = Operand::kScaled ? scale_exponent(header->largest, kSourceTarget) : 0;
  const std::uint32_t items = static_cast<std::uint32_t>(to.tiles) * to.by_planes.divisor * to.by_places.divisor;
  const std::uint32_t pieces = (items + kSourceThreads - 1) / kSourceThreads;
  const std::uint32_t above = blockIdx.x / pieces, item = (blockIdx.x - above * pieces) * kSourceThreads + threadIdx.x;
  if (item >= items) return;
  const std::uint32_t g = to.by_row_blocks.divide(above), row_block = above - g * to.by_row_blocks.divisor;
  // Neighbouring threads: neighbouring elements of a row, which with a stride lie in different planes.
  const std::uint32_t place = to.by_planes.divide(item), plane = item - place * to.by_planes.divisor;
  const std::uint32_t tile = to.by_places.divide(place), in_tile = place - tile * to.by_places.divisor;
  const std::uint32_t position = tile * static_cast<std::uint32_t>(to.tile_positions) + in_tile;
  const std::uint32_t n = to.by_sample.divide(position);
  const std::uint32_t tap = to.taps_apart ? to.by_own_planes.divide(plane) : 0,
                      own_plane = plane - tap * to.by_own_planes.divisor;
  const std::int64_t u = to.position_begin + (position - n * to.by_sample.divisor) + tap * form.tap_step;
  const std::int64_t e = form.source_stride * u + own_plane * form.source_plane_step + form.source_origin;
  const bool exists = n < form.N && e >= 0 && e < form.source_length;
  const std::int64_t row0 = static_cast<std::int64_t>(row_block) * kWideRows;
  const T* from = source + ((static_cast<std::int64_t>(n) * form.G + g) * form.rows + row0) * form.source_length + e;
  T values[kWideRows];
#pragma unroll
  for (int c = 0; c < kWideRows; ++c) values[c] = exists && row0 + c < form.rows ? from[c * form.source_length] : T(0.0F);
  uint4 parts[Operand::kParts];
  const std::uint32_t faults = make_operand<Operand>(values, power_of_two(exponent), SplitRange(exponent), parts);
  std::int64_t at = (g * to.tiles + tile) * to.row_steps + row_block / kWideBlocks;
  at = (at * to.planes + plane) * to.parts * kWideBlocks + row_block % kWideBlocks;
#pragma unroll
  for (int part = 0; part < Operand::kParts; ++part)
    reinterpret_cast<uint4*>(operand)[(at + part * kWideBlocks) * to.tile_places + in_tile] = parts[part];
  // By the position that the element has without its tap: whoever reads it looks there.
  if (flags != nullptr && faults != 0)
    add_faults(flags + g * to.flags + (position + tap * static_cast<std::uint32_t>(form.tap_step)) / kFlagPositions, faults);
}

}  // namespace polyphase::cuda::tensor_core
