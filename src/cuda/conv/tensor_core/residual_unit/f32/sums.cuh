#pragma once
// A warpgroup's sums of a residual unit of f32: those of sums.cuh, scaled. finish() makes sums with bias of them, which become
// the middle or the outputs.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/residual_unit/f32/activation.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/marked_number.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/scale.cuh"
#include "cuda/conv/tensor_core/residual_unit/kernel.cuh"
#include "cuda/conv/tensor_core/residual_unit/sums.cuh"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// Four numbers of a sample from number `at` on, by an offset of 32 bits.
__device__ __forceinline__ const float4* four_at(const float* sample, std::uint32_t at) {
  return reinterpret_cast<const float4*>(reinterpret_cast<const unsigned char*>(sample) + at * 4);
}
__device__ __forceinline__ float4* four_at(float* sample, std::uint32_t at) {
  return reinterpret_cast<float4*>(reinterpret_cast<unsigned char*>(sample) + at * 4);
}

/// From an operand to that of the low parts, in bytes.
template <class Shape>
__device__ __forceinline__ std::uint32_t low_operand(const UnitTiling& tiling) {
  return static_cast<std::uint32_t>(UnitLayout<Shape>::operand_bytes(tiling));
}

/// words = four matrices of the scaled sums; low = their low parts, if the operand has them.
template <class Shape, int kSums>
__device__ __forceinline__ void scale_matrices(ScaledWords& scaled, const float (&sums)[kSums], int step,
                                               std::uint32_t (&words)[4], [[maybe_unused]] std::uint32_t (&low)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = sum_of_matrix(step, i);
    if constexpr (Shape::kOperands == 2)
      words[i] = scaled.split(sums[at], sums[at + 1], low[i]);
    else
      words[i] = scaled(sums[at], sums[at + 1]);
  }
}

/// Which positions of the block count, [begin, end).
struct UnitRange {
  int begin, end;
  [[nodiscard]] __device__ __forceinline__ bool has(int position) const { return position >= begin && position < end; }
};

template <class Shape>
struct UnitF32SumsOfChannels : UnitSumsOfChannels<__half, Shape> {
  using Base = UnitSumsOfChannels<__half, Shape>;
  using Base::channel, Base::first, Base::kSums, Base::lane, Base::sums, Base::tiling, Base::to_middle;
  static constexpr int kColumns = 32, kPitch = kColumns + 8;  // of what a warp stages at a time
  int warp;

  __device__ __forceinline__ UnitF32SumsOfChannels(const UnitTiling& of, const UnitPlaces& at) : Base(of, at), warp(at.warp) {}
  [[nodiscard]] __device__ __forceinline__ float& at(int i) { return sums[i]; }
  /// Whether a sum that counts may have lost too much, when `small` numbers of the block have lost bits.
  [[nodiscard]] __device__ __forceinline__ bool is_coarse(const UnitChannel* channels, float small,
                                                          const UnitRange& range) const {
    const float least[2] = {least_sum(channels[channel + lane / 4], small), least_sum(channels[channel + 8 + lane / 4], small)};
    bool is_coarse = false;
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      is_coarse |= !(fabsf(sums[i]) >= least[i / 2 % 2]) && range.has(first + i / 4 * 8 + 2 * (lane % 4) + i % 2);
    return is_coarse;
  }
  /// sums = sums*inverse*lower, with the scale and the bias of their channels.
  __device__ __forceinline__ void finish(const UnitChannel* channels, float inverse, float lower) {
    UnitChannel of[2] = {channels[channel + lane / 4], channels[channel + 8 + lane / 4]};
    for (UnitChannel& one : of) one.inverse *= lower;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = fmaf(sums[i] * inverse, of[i / 2 % 2].inverse, of[i / 2 % 2].bias);
  }
  /// Activates the sums, those outside the range become zeros. Returns the largest magnitude.
  template <class Activation>
  __device__ __forceinline__ float activate(const Activation& activation, const UnitRange& range, bool& is_unfit) {
    const SnakeOne of[2] = {activation.of(channel + lane / 4), activation.of(channel + 8 + lane / 4)};
    const bool is_whole = range.begin <= first && range.end >= first + Base::kPositions;
    float largest = 0;
#pragma unroll
    for (int group = 0; group < kSums / 8; ++group) {
      float v[8];
      float* const own = sums + 8 * group;
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = own[i];
      if (!is_whole) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (!range.has(first + (2 * group + i / 4) * 8 + 2 * (lane % 4) + i % 2)) v[i] = 0;
      }
      activation.apply(
          v, [&](int i) -> const SnakeOne& { return of[i / 2 % 2]; }, is_unfit);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        largest = fmaxf(largest, fabsf(v[i]));
        own[i] = v[i];
      }
    }
    return largest;
  }
  /// Stores the scaled sums as the operand. Returns how many have lost bits.
  [[nodiscard]] __device__ __forceinline__ int store_operand(const BlockScale& scale) {
    if (scale.is_raised) {
#pragma unroll
      for (float& sum : sums) sum *= BlockScale::kRaise;
    }
    ScaledWords scaled(scale.by);
#pragma unroll
    for (int step = 0; step < Base::kSteps; ++step) {
      std::uint32_t words[4], low[4];
      scale_matrices<Shape>(scaled, sums, step, words, low);
      ptx::store_matrices_transposed(to_middle + step * 256, words);
      if constexpr (Shape::kOperands == 2)
        ptx::store_matrices_transposed(to_middle + low_operand<Shape>(tiling) + step * 256, low);
    }
    int small = 0;
    if (scaled.has_small()) {
#pragma unroll
      for (const float sum : sums) small += scaled.is_small(sum) ? 1 : 0;
    }
    return small;
  }
  /// Stores the scaled sums as MarkedNumber: an operand of vectors of 4 channels.
  __device__ __forceinline__ void store_marked(unsigned char* operand, float scale) const {
    const int own = channel + lane / 4, position = first + 2 * (lane % 4);
    auto* const to = reinterpret_cast<float*>(operand) + (own / 4 * tiling.pitch + position) * 4 + own % 4;
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      to[i / 2 % 2 * 8 * tiling.pitch + i / 4 * 32 + i % 2 * 4] = MarkedNumber<Shape>::of(sums[i] * scale);
  }
  /// out = sums + x for `count` outputs from `begin` on of a sample's rows. `staged`: the operand's memory, which no warp
  /// reads.
  __device__ __forceinline__ void store(unsigned char* staged, const float* __restrict__ x, float* __restrict__ out, int begin,
                                        int count) const {
    float* const own = reinterpret_cast<float*>(staged) + warp * 16 * kPitch;
    const int row = lane / 8, column = lane % 8 * 4;
    const auto length = static_cast<std::uint32_t>(tiling.length);
    const std::uint32_t at =
        static_cast<std::uint32_t>(channel + row) * length + static_cast<std::uint32_t>(begin + first + column);
    const auto place = [&](int part, int r) {
      return at + static_cast<std::uint32_t>(4 * r) * length + static_cast<std::uint32_t>(part * kColumns);
    };
#pragma unroll
    for (int part = 0; part < Base::kPositions / kColumns; ++part) {
      const bool exists = first + part * kColumns + column < count;
      float4 added[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) added[r] = ptx::load_or_zero(four_at(x, place(part, r)), exists);
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const int from = part * 16 + i;
        *reinterpret_cast<float2*>(own + (lane / 4 + i / 2 % 2 * 8) * kPitch + i / 4 * 8 + 2 * (lane % 4)) =
            make_float2(sums[from], sums[from + 1]);
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float4 sum = *reinterpret_cast<const float4*>(own + (row + 4 * r) * kPitch + column);
        if (exists)
          __stcs(four_at(out, place(part, r)),
                 make_float4(added[r].x + sum.x, added[r].y + sum.y, added[r].z + sum.z, added[r].w + sum.w));
      }
      __syncwarp();
    }
  }
};

template <class Shape>
struct UnitF32SumsOfPositions : UnitSumsOfPositions<__half, Shape> {
  using Base = UnitSumsOfPositions<__half, Shape>;
  using Base::kBlocks, Base::kSteps, Base::first, Base::position, Base::lane, Base::sums, Base::tiling, Base::to_middle;
  static constexpr int kOfBlock = Shape::kChannels / 2, kSums = kBlocks * kOfBlock;
  static constexpr int kPitch = 64 + 4;  // of a channel of what a warpgroup stages at a time
  int warp;

  __device__ __forceinline__ UnitF32SumsOfPositions(const UnitTiling& of, const UnitPlaces& at) : Base(of, at), warp(at.warp) {}
  [[nodiscard]] __device__ __forceinline__ float& at(int i) { return sums[i / kOfBlock][i % kOfBlock]; }
  [[nodiscard]] __device__ __forceinline__ bool is_coarse(const UnitChannel* channels, float small,
                                                          const UnitRange& range) const {
    bool is_coarse = false;
#pragma unroll
    for (int i = 0; i < Shape::kChannels / 2; ++i) {
      const float least = least_sum(channels[i / 4 * 8 + 2 * (lane % 4) + i % 2], small);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        is_coarse |= !(fabsf(sums[block][i]) >= least) && range.has(position + block * 64 + i / 2 % 2 * 8);
    }
    return is_coarse;
  }
  __device__ __forceinline__ void finish(const UnitChannel* channels, float inverse, float lower) {
#pragma unroll
    for (int v = 0; v < Shape::kVectors; ++v)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const UnitChannel of = channels[v * 8 + 2 * (lane % 4) + c];
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& sum = sums[block][4 * v + 2 * h + c];
            sum = fmaf(sum * inverse, of.inverse * lower, of.bias);
          }
      }
  }
  template <class Activation>
  __device__ __forceinline__ float activate(const Activation& activation, const UnitRange& range, bool& is_unfit) {
    float largest = 0;
#pragma unroll
    for (int v = 0; v < Shape::kVectors; v += 2) {
      SnakeOne of[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) of[i] = activation.of((v + i / 2) * 8 + 2 * (lane % 4) + i % 2);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        float values[8];
        float* const own = sums[block] + 4 * v;
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = range.has(position + block * 64 + i / 2 % 2 * 8) ? own[i] : 0.0F;
        activation.apply(
            values, [&](int i) -> const SnakeOne& { return of[i / 4 * 2 + i % 2]; }, is_unfit);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          largest = fmaxf(largest, fabsf(values[i]));
          own[i] = values[i];
        }
      }
    }
    return largest;
  }
  [[nodiscard]] __device__ __forceinline__ int store_operand(const BlockScale& scale) {
    if (scale.is_raised) {
#pragma unroll
      for (auto& block : sums)
#pragma unroll
        for (float& sum : block) sum *= BlockScale::kRaise;
    }
    ScaledWords scaled(scale.by);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t words[4], low[4];
        scale_matrices<Shape>(scaled, sums[block], step, words, low);
        const std::uint32_t to = to_middle + static_cast<std::uint32_t>((2 * step * tiling.pitch + block * 64) * 16);
        ptx::store_matrices(to, words);
        if constexpr (Shape::kOperands == 2) ptx::store_matrices(to + low_operand<Shape>(tiling), low);
      }
    int small = 0;
    if (scaled.has_small()) {
#pragma unroll
      for (const auto& block : sums)
#pragma unroll
        for (const float sum : block) small += scaled.is_small(sum) ? 1 : 0;
    }
    return small;
  }
  __device__ __forceinline__ void store_marked(unsigned char* operand, float scale) const {
    using Number = MarkedNumber<Shape>;
    auto* const to = reinterpret_cast<float*>(operand) + (lane % 4 / 2 * tiling.pitch + position) * 4 + lane % 2 * 2;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < Shape::kChannels / 2; i += 2)
        *reinterpret_cast<float2*>(to + (i / 4 * 2 * tiling.pitch + block * 64 + i / 2 % 2 * 8) * 4) =
            make_float2(Number::of(sums[block][i] * scale), Number::of(sums[block][i + 1] * scale));
  }
  __device__ __forceinline__ void store(unsigned char* staged, const float* __restrict__ x, float* __restrict__ out, int begin,
                                        int count) const {
    constexpr int kAtOnce = 32;  // channels
    const int group = warp / 4, thread = warp % 4 * 32 + lane, row = thread / 16, column = thread % 16 * 4;
    float* const own = reinterpret_cast<float*>(staged) + group * kAtOnce * kPitch;
    const auto synchronize = [&] { ptx::named_barrier(2 + group, 128); };
    constexpr int kRows = 4, kTimes = Shape::kChannels / kAtOnce, kParts = kBlocks * kTimes;
    const auto exists = [&](int part) { return first + part / kTimes * 64 + column < count; };
    const auto length = static_cast<std::uint32_t>(tiling.length);
    const auto place = [&](int part, int r) {
      return static_cast<std::uint32_t>(part % kTimes * kAtOnce + row + 8 * r) * length +
             static_cast<std::uint32_t>(begin + first + part / kTimes * 64 + column);
    };
    float4 added[2][kRows];
    const auto load = [&](int part) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) added[part % 2][r] = exists(part) ? __ldg(four_at(x, place(part, r))) : float4{};
    };
    load(0);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part + 1 < kParts) load(part + 1);
#pragma unroll
      for (int i = 0; i < 16; ++i)
        own[(i / 4 * 8 + 2 * (lane % 4) + i % 2) * kPitch + warp % 4 * 16 + lane / 4 + i / 2 % 2 * 8] =
            sums[part / kTimes][part % kTimes * 16 + i];
      synchronize();
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float4 sum = *reinterpret_cast<const float4*>(own + (row + 8 * r) * kPitch + column);
        const float4 add = added[part % 2][r];
        if (exists(part))
          __stcs(four_at(out, place(part, r)), make_float4(add.x + sum.x, add.y + sum.y, add.z + sum.z, add.w + sum.w));
      }
      synchronize();
    }
  }
};

template <class Shape>
using UnitF32Sums = std::conditional_t<Shape::kOfPositions, UnitF32SumsOfPositions<Shape>, UnitF32SumsOfChannels<Shape>>;

}  // namespace polyphase::cuda::tensor_core
