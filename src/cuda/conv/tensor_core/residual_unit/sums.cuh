#pragma once
// A warpgroup's sums of a residual unit (kernel.cuh): 64 or 48 in each thread. They begin with the biases, become the middle,
// or begin with biases and source and become the outputs.
//
// With 64 channels and more gemm_m = channels, gemm_n = 128 or 96 positions: a product reads 64 rows of weights and as many
// positions.
// With 32 channels gemm_m = positions, gemm_n = channels.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/matrices.cuh"
#include "cuda/conv/tensor_core/residual_unit/activation.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

/// The offset of a position, a multiple of 8, in the source's boxes: [box][channel][width].
template <class Shape>
__device__ __forceinline__ int source_offset(const UnitTiling& tiling, int position) {
  int boxes = 0;  // before it
#pragma unroll
  for (int box = 1; box < Shape::kMostBoxes; ++box) boxes += position >= box * tiling.source_width ? 1 : 0;
  return (boxes * (Shape::kChannels - 1) * tiling.source_width + position) * 2;
}

/// Where a warpgroup's sums are, and where their matrices of 8 x 8 come from and go to.
struct UnitPlaces {
  std::uint32_t operand, source;  // addresses
  int warp, lane;
};

/// gemm_m = channels: thread (warp of the group, lane) has channels 16*warp + 8*h + lane/4, positions 8*j + 2*(lane%4) and the
/// next. Matrices are handled four at a time; lane 8i + r addresses row r of matrix i, where h = i%2, j = 2*step + i/2.
template <class T, class Shape>
struct UnitSumsOfChannels {
  static constexpr int kParts = Shape::kChannels / 64, kPositions = Shape::kPositions * kParts / Shape::kGroups;
  static constexpr int kSums = kPositions / 2, kSteps = kPositions / 16;
  const UnitTiling& tiling;
  std::uint32_t weights;  // of the descriptor: this warpgroup's channels
  int first;              // position of this warpgroup
  int channel, row;       // the first of this warp; that of this lane as an address
  int lane;
  std::uint32_t to_middle, to_staged, source;
  float sums[kSums];

  __device__ __forceinline__ UnitSumsOfChannels(const UnitTiling& of, const UnitPlaces& at)
      : tiling(of), first(at.warp / 4 / kParts * kPositions), lane(at.lane) {
    const int part = at.warp / 4 % kParts, h = lane / 8 % 2, j = lane / 16;
    weights = static_cast<std::uint32_t>(part * 64);
    channel = part * 64 + at.warp % 4 * 16;
    row = channel + 8 * h + lane % 8;
    to_middle = at.operand + static_cast<std::uint32_t>(((channel / 8 + h) * tiling.pitch + first + 8 * j + lane % 8) * 16);
    to_staged = at.operand + static_cast<std::uint32_t>((row * Shape::kStagedPitch + first + 8 * j) * 2);
    source = at.source + static_cast<std::uint32_t>(row * tiling.source_width * 2);
  }
  [[nodiscard]] static __device__ __forceinline__ int bias_place(int of_channel) { return of_channel; }
  __device__ __forceinline__ void begin(const float* biases) {
    const float bias[2] = {biases[channel + lane / 4], biases[channel + 8 + lane / 4]};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = bias[i / 2 % 2];
  }
  __device__ __forceinline__ void fence() { ptx::fence_registers(sums); }
  /// sums += two vectors of channels of a tap: descriptors of positions and weights.
  template <class Operand>
  __device__ __forceinline__ void multiply(std::uint64_t positions, std::uint64_t of_weights) {
    ptx::Wgmma<Operand::kType, kPositions>::multiply(sums, of_weights + weights, positions, true);
  }
  /// Stores the activated middle; zeros outside the sample. `begin`: where the middle begins in the sample.
  template <class Activation>
  __device__ __forceinline__ void store_middle(int begin, const Activation& activation) const {
    const int own = begin + first;
    if (own >= 0 && own + kPositions <= tiling.length)
      store_middle_by(activation, [](std::uint32_t word, int) { return word; });
    else
      store_middle_by(activation, [&](std::uint32_t word, int j) {
        const int position = own + 8 * j + 2 * (lane % 4);
        const auto exists = [&](int at) { return at >= 0 && at < tiling.length; };
        return word & ((exists(position) ? 0xffffU : 0U) | (exists(position + 1) ? 0xffff0000U : 0U));
      });
  }
  /// sums += x at the outputs.
  __device__ __forceinline__ void add_source() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t words[4];
      const int position = tiling.before + first + 16 * step + 8 * (lane / 16);
      ptx::load_matrices(words, source + static_cast<std::uint32_t>(source_offset<Shape>(tiling, position)));
      add_matrices<T>(words, step, sums);
    }
  }
  /// Stores the rounded sums as rows of channels.
  __device__ __forceinline__ void stage() const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t words[4];
      round_matrices<T>(sums, step, words);
      ptx::store_matrices(to_staged + step * 32, words);
    }
  }

 private:
  template <class Activation, class Mask>
  __device__ __forceinline__ void store_middle_by(const Activation& activation, const Mask& mask) const {
    const int own = channel + lane / 4;
    const SnakeWord of_row[2] = {activation.of_one(own), activation.of_one(own + 8)};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t words[4];
      round_matrices<T>(sums, step, words);
      activation.apply(words, [&](int i) -> const SnakeWord& { return of_row[i % 2]; });
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = mask(words[i], 2 * step + i / 2);
      ptx::store_matrices_transposed(to_middle + step * 256, words);
    }
  }
};

/// gemm_m = positions, in blocks of 64: thread (warp of the group, lane) has positions 16*warp + 8*h + lane/4 of each, channels
/// 8*v + 2*(lane%4) and the next. Lane 8i + r addresses row r of matrix i, where h = i%2, v = 2*step + i/2.
template <class T, class Shape>
struct UnitSumsOfPositions {
  static constexpr int kBlocks = Shape::kPositions / (64 * Shape::kGroups), kSteps = Shape::kVectors / 2;
  const UnitTiling& tiling;
  int first;     // position of this warpgroup
  int position;  // of this lane in the first block
  int lane;
  std::uint32_t to_middle, to_staged, source[kBlocks];
  float sums[kBlocks][Shape::kChannels / 2];

  __device__ __forceinline__ UnitSumsOfPositions(const UnitTiling& of, const UnitPlaces& at)
      : tiling(of), first(at.warp / 4 * kBlocks * 64), lane(at.lane) {
    const int of_warp = first + at.warp % 4 * 16, of_matrix = of_warp + lane / 8 % 2 * 8;
    const int channel = lane / 16 * 8 + lane % 8;
    position = of_warp + lane / 4;
    to_middle = at.operand + static_cast<std::uint32_t>((lane / 16 * tiling.pitch + of_matrix + lane % 8) * 16);
    to_staged = at.operand + static_cast<std::uint32_t>((channel * Shape::kStagedPitch + of_matrix) * 2);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      source[i] = at.source + static_cast<std::uint32_t>(channel * tiling.source_width * 2 +
                                                         source_offset<Shape>(tiling, tiling.before + of_matrix + i * 64));
  }
  /// A thread's numbers of two vectors of channels are neighbours.
  [[nodiscard]] static __device__ __forceinline__ int bias_place(int channel) {
    return channel / 16 * 16 + channel % 8 / 2 * 4 + channel / 8 % 2 * 2 + channel % 2;
  }
  __device__ __forceinline__ void begin(const float* biases) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const float4 bias = *reinterpret_cast<const float4*>(biases + 16 * step + 4 * (lane % 4));
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float* const at = sums[i] + sum_of_matrix(step, h);
          at[0] = bias.x, at[1] = bias.y, at[4] = bias.z, at[5] = bias.w;
        }
    }
  }
  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) ptx::fence_registers(sums[i]);
  }
  template <class Operand>
  __device__ __forceinline__ void multiply(std::uint64_t positions, std::uint64_t of_weights) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      ptx::Wgmma<Operand::kType, Shape::kChannels>::multiply(sums[i], positions + i * 64, of_weights, true);
  }
  template <class Activation>
  __device__ __forceinline__ void store_middle(int begin, const Activation& activation) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      std::uint32_t exists[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int own = begin + position + i * 64 + h * 8;
        exists[h] = own >= 0 && own < tiling.length ? ~0U : 0U;
      }
      for_matrices(i, [&](const std::uint32_t(&rounded)[4], int step) {
        std::uint32_t words[4] = {rounded[0], rounded[1], rounded[2], rounded[3]};
        const int channel = 16 * step + 2 * (lane % 4);
        const SnakeWord of_vector[2] = {activation.of_neighbours(channel), activation.of_neighbours(channel + 8)};
        activation.apply(words, [&](int k) -> const SnakeWord& { return of_vector[k / 2]; });
#pragma unroll
        for (int k = 0; k < 4; ++k) words[k] &= exists[k % 2];
        ptx::store_matrices(to_middle + static_cast<std::uint32_t>((2 * step * tiling.pitch + i * 64) * 16), words);
      });
    }
  }
  __device__ __forceinline__ void add_source() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t words[4];
        ptx::load_matrices_transposed(words, source[i] + static_cast<std::uint32_t>(step * 16 * tiling.source_width * 2));
        add_matrices<T>(words, step, sums[i]);
      }
  }
  __device__ __forceinline__ void stage() const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      for_matrices(i, [&](const std::uint32_t(&words)[4], int step) {
        ptx::store_matrices_transposed(to_staged + static_cast<std::uint32_t>(step * 32 * Shape::kStagedPitch + i * 128),
                                       words);
      });
  }

 private:
  /// Calls function(rounded sums of four matrices, step) for a block of positions.
  template <class Function>
  __device__ __forceinline__ void for_matrices(int block, const Function& function) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t words[4];
      round_matrices<T>(sums[block], step, words);
      function(words, step);
    }
  }
};

}  // namespace polyphase::cuda::tensor_core
