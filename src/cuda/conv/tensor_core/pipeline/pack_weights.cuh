#pragma once
// Packs the weights as operands.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPackThreads = 256;

/// packed[weight tile][step][tap][plane][part][block of rows][column][kVector], or ...[block of rows][part][column][kVector]
/// with the last part first (Tiling::has_parts_together); zero where there is no weight. `count` vectors, fewer than 2^32.
template <class Operand>
__global__ void __launch_bounds__(kPackThreads)
    pack_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Tiling tiling,
                const __grid_constant__ ConvProblem problem, int tile_columns, bool is_forward, std::int64_t count,
                const typename Operand::Source* __restrict__ w, unsigned char* __restrict__ packed,
                WeightHeader* __restrict__ weight_header) {
  using T = typename Operand::Source;
  constexpr int kVector = Operand::kVector;
  // No number here needs more than 32 bits, and a 64-bit division takes five times as long.
  const auto divided = [](std::int64_t a, std::int64_t b) {
    return std::int64_t{static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b)};
  };
  const std::int64_t out_per_group = divided(problem.C_out, problem.G), in_per_group = divided(problem.C_in, problem.G);
  const std::int64_t column_tiles = divided(tiling.weight_tiles, gemm.G);
  const int exponent = Operand::kScaled ? scale_exponent(weight_header->largest, kWeightTarget) : 0;
  const SplitRange range(exponent);
  Split worst = Split::exact;
  std::uint32_t small = 0;  // as add_small_weights() counts
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    std::int64_t rest = i;
    auto take = [&rest, divided](std::int64_t size) {
      const std::int64_t above = divided(rest, size), digit = rest - above * size;
      rest = above;
      return digit;
    };
    const int blocks = tiling.rows / kVector;
    const std::int64_t column_in_tile = take(tile_columns), block = take(blocks), plane_in_step = take(tiling.planes);
    const std::int64_t tap = take(tiling.taps);
    const std::int64_t plane = plane_in_step + take(tiling.plane_steps) * tiling.planes;
    const std::int64_t row_step = take(tiling.row_steps);
    const std::int64_t column = column_in_tile + take(column_tiles) * tile_columns, g = rest;
    const std::int64_t channel = is_forward ? divided(column, gemm.classes) : column;
    const std::int64_t a = is_forward ? column - channel * gemm.classes : plane;
    const std::int64_t k = a + (is_forward ? gemm.taps - 1 - tap : tap) * gemm.phase_classes;
    const bool exists = column < gemm.columns && plane < gemm.planes && k < problem.K;
    T values[kVector];
    std::uint32_t small_here = 0;
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      const std::int64_t row = row_step * tiling.rows + block * kVector + c;
      const std::int64_t ci = g * in_per_group + (is_forward ? row : column);
      const std::int64_t co = is_forward ? channel : row;
      values[c] = exists && row < gemm.rows ? w[(ci * out_per_group + co) * problem.K + k] : T(0.0F);
      if constexpr (Operand::kScaled) {
        const Split split = range.of(values[c]);
        worst = worse(worst, split);
        small_here += split == Split::small ? 1 : 0;
      }
    }
    small += small_here == kVector ? small_here : 0;
    uint4 parts[Operand::kParts];
    convert<Operand>(values, power_of_two(exponent), parts);
    // i without its parts: they stand between plane and block, or between block and column.
    const std::int64_t of_part = tiling.has_parts_together ? tile_columns : static_cast<std::int64_t>(blocks) * tile_columns;
    const std::int64_t above = divided(i, of_part), vector = i - above * of_part;
#pragma unroll
    for (int part = 0; part < Operand::kParts; ++part) {
      const int place = tiling.has_parts_together ? Operand::kParts - 1 - part : part;
      reinterpret_cast<uint4*>(packed)[(above * Operand::kParts + place) * of_part + vector] = parts[part];
    }
  }
  if (Operand::kScaled && worst != Split::exact) atomicMax(&weight_header->split, static_cast<std::uint32_t>(worst));
  if (small != 0) atomicAdd(&weight_header->small, small);  // integers: the order does not matter
}

}  // namespace polyphase::cuda::tensor_core
