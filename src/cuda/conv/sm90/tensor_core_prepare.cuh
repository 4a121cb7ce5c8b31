#pragma once
// What comes before the product: the scales of the splitting, and the weights as operands.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/sm90/exact_sum.cuh"
#include "cuda/conv/sm90/scales.cuh"
#include "cuda/conv/sm90/tensor_core_steps.hpp"

namespace polyphase::cuda::tensor_core {

/// The largest weight, and the largest of about 65 thousand source elements.
static __global__ void __launch_bounds__(kPrepareThreads)
    scales_kernel(const float* __restrict__ source, std::int64_t source_count, const float* __restrict__ w,
                  std::int64_t weight_count, State* __restrict__ state) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kPrepareThreads + threadIdx.x;
  if (blockIdx.x < kSampleBlocks) {
    const std::int64_t stride = max(static_cast<std::int64_t>(1), source_count / kSample);
    find_largest(source, thread * stride, kSampleBlocks * kPrepareThreads * stride, source_count, &state->source_largest);
  } else {
    find_largest(w, thread - kSampleBlocks * kPrepareThreads,
                 static_cast<std::int64_t>(gridDim.x - kSampleBlocks) * kPrepareThreads, weight_count, &state->weight_largest);
  }
}

/// packed[weight tile][step][tap][plane][part][block of rows][column][kVector]; zero where there is no weight.
template <class Operand>
__global__ void __launch_bounds__(kPrepareThreads)
    pack_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ Steps steps,
                const __grid_constant__ ConvProblem problem, int tile_columns, bool is_forward, std::int64_t count,
                const typename Operand::Source* __restrict__ w, unsigned char* __restrict__ packed, State* __restrict__ state) {
  using T = typename Operand::Source;
  constexpr int kVector = Operand::kVector;
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  const int exponent = Operand::kScaled ? scale_exponent(state->weight_largest, kWeightTarget) : 0;
  const SplitRange range(exponent);
  Split worst = Split::exact;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    std::int64_t rest = i;
    auto take = [&rest](std::int64_t size) {
      const std::int64_t digit = rest % size;
      rest /= size;
      return digit;
    };
    const int blocks = steps.rows / kVector;
    const std::int64_t column_in_tile = take(tile_columns), block = take(blocks), plane_in_step = take(steps.planes);
    const std::int64_t tap = take(steps.taps), tap_step = take(steps.tap_steps);
    const std::int64_t plane = plane_in_step + take(steps.plane_steps) * steps.planes;
    const std::int64_t row_step = take(steps.row_steps);
    const std::int64_t column_tiles = steps.weight_tiles / form.G;
    const std::int64_t column = column_in_tile + take(column_tiles) * tile_columns, g = rest;
    const std::int64_t window = tap + tap_step * steps.taps;
    const std::int64_t a = is_forward ? column % form.classes : plane;
    const std::int64_t k = a + (is_forward ? form.taps - 1 - window : window) * form.phase_classes;
    const bool exists = column < form.columns && plane < form.planes && window < form.taps && k < problem.K;
    T values[kVector];
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      const std::int64_t row = row_step * steps.rows + block * kVector + c;
      const std::int64_t ci = g * in_per_group + (is_forward ? row : column);
      const std::int64_t co = is_forward ? column / form.classes : row;
      values[c] = exists && row < form.rows ? w[(ci * out_per_group + co) * problem.K + k] : T(0.0F);
      if constexpr (Operand::kScaled) worst = worse(worst, range.of(values[c]));
    }
    uint4 parts[Operand::kParts];
    convert<Operand>(values, power_of_two(exponent), parts);
    // i without its parts, with them put between plane and block.
    const std::int64_t vector = i % (static_cast<std::int64_t>(blocks) * tile_columns);
    const std::int64_t above = i / (static_cast<std::int64_t>(blocks) * tile_columns);
#pragma unroll
    for (int part = 0; part < Operand::kParts; ++part) {
      const std::int64_t at = (above * Operand::kParts + part) * blocks * tile_columns + vector;
      reinterpret_cast<uint4*>(packed)[at] = parts[part];
    }
  }
  if (Operand::kScaled && worst != Split::exact) atomicMax(&state->weight_split, static_cast<std::uint32_t>(worst));
}

inline constexpr int kRepairPieces = 8;  // blocks that share a marked tile

/// Computes outputs of tile `block` again with FFMA: everything where a number could not be scaled at all, else the sums so
/// near zero that its small numbers count.
__device__ __forceinline__ void repair_tile(const TapGemm& form, const Steps& steps, const ConvProblem& problem, int columns,
                                            int positions, const Epilogue& epilogue, bool is_forward, float least,
                                            std::int64_t block, Split split, const float* __restrict__ source,
                                            const float* __restrict__ w, const float* __restrict__ bias,
                                            float* __restrict__ out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool everything = split == Split::never;
  const std::int64_t tile = block % steps.weight_tiles, above = block / steps.weight_tiles;
  const std::int64_t n = above / steps.position_tiles;
  const std::int64_t position_tile = above % steps.position_tiles;
  const std::int64_t earlier = steps.run_tiles > 0 ? position_tile / steps.run_tiles * steps.run_overlap : 0;
  const std::int64_t position0 = steps.position_begin + position_tile * steps.position_step - earlier;
  const std::int64_t column_tiles = steps.weight_tiles / form.G, g = tile / column_tiles;
  const std::int64_t column0 = tile % column_tiles * columns;
  for (int i = static_cast<int>(blockIdx.y * 256 + threadIdx.x); i < columns * positions; i += 256 * kRepairPieces) {
    const std::int64_t column = column0 + i / positions, position = position0 + i % positions;
    const std::int64_t channel = column / form.classes;
    const std::int64_t t = form.out_stride * position + column % form.classes * form.out_class_step + form.out_origin;
    const std::int64_t own = g * form.out_channels + channel;
    const bool exists = column < form.columns && t >= 0 && t < form.out_length;
    const float offset = exists && bias != nullptr ? bias[own] : 0.0F;
    float* result = out + (n * form.G * form.out_channels + own) * form.out_length + t;
    std::uint32_t wanted =
        __ballot_sync(0xffffffffU, exists && (everything || !(fabsf(epilogue.undo(*result) - offset) >= least)));
    for (; wanted != 0; wanted &= wanted - 1) {
      const int owner = __ffs(static_cast<int>(wanted)) - 1;
      const float sum = exact_sum(form, problem, is_forward, n, g, __shfl_sync(0xffffffffU, column, owner),
                                  __shfl_sync(0xffffffffU, position, owner), source, w);
      if (lane == owner) *result = epilogue.apply(sum + offset);
    }
  }
}

/// Computes again what the scaling may have got wrong, in the marked tiles.
static __global__ void __launch_bounds__(256)
    repair_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ Steps steps,
                  const __grid_constant__ ConvProblem problem, int columns, int positions,
                  const __grid_constant__ Epilogue epilogue, bool is_forward, double least_sum,
                  const float* __restrict__ source, const float* __restrict__ w, const float* __restrict__ bias,
                  float* __restrict__ out, const std::uint32_t* __restrict__ tile_split, const State* __restrict__ weights,
                  State* __restrict__ state) {
  const float least = ldexpf(static_cast<float>(least_sum), -scale_exponent(state->source_largest, kSourceTarget) -
                                                                scale_exponent(weights->weight_largest, kWeightTarget));
  __shared__ int marked_count;
  __shared__ std::int64_t marked[256];
  for (std::int64_t first = blockIdx.x; first < steps.blocks; first += static_cast<std::int64_t>(256) * gridDim.x) {
    // Mostly there is nothing to do: that is found out for 256 tiles at once.
    const std::int64_t own_block = first + static_cast<std::int64_t>(threadIdx.x) * gridDim.x;
    const bool is_marked = own_block < steps.blocks && static_cast<Split>(tile_split[own_block]) != Split::exact;
    if (__syncthreads_or(is_marked ? 1 : 0) == 0) continue;
    if (threadIdx.x == 0) marked_count = 0;
    __syncthreads();
    if (is_marked) marked[atomicAdd(&marked_count, 1)] = own_block;
    __syncthreads();
    for (int at = 0; at < marked_count; ++at)
      repair_tile(form, steps, problem, columns, positions, epilogue, is_forward, least, marked[at],
                  static_cast<Split>(tile_split[marked[at]]), source, w, bias, out);
    __syncthreads();
  }
}

}  // namespace polyphase::cuda::tensor_core
