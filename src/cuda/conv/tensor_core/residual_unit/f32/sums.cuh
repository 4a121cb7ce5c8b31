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
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace polyphase::cuda::tensor_core {

/// What a sample's outputs are stored with: x, the outputs, and what they are averaged with if that is not null.
template <class Shape>
struct UnitSample {
  const float* __restrict__ x;
  float* __restrict__ out;
  const UnitAverage& average;
  const float* __restrict__ other;

  __device__ __forceinline__ UnitSample(const UnitTiling& tiling, const float* all_x, float* all_out, const UnitAverage& of,
                                        int sample)
      : average(of) {
    const std::int64_t first = static_cast<std::int64_t>(sample) * Shape::kChannels * tiling.length;
    x = all_x + first, out = all_out + first;
    other = of.other != nullptr ? static_cast<const float*>(of.other) + first : nullptr;
  }
};

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
  static constexpr int kChannels = Shape::kChannels;
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
  /// Asks for what store() averages with.
  __device__ __forceinline__ void prefetch(const float* other, int begin, int count) const {
    const Rows rows(*this, begin);
#pragma unroll
    for (int part = 0; part < Base::kPositions / kColumns; ++part)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        ptx::prefetch_l2(four_at(other, rows.place(part, r)), lane % 8 == 0 && first + part * kColumns < count);  // 128 bytes
  }
  /// out = sums + x for `count` outputs from `begin` on of a sample's rows; kAverages: averaged. `staged`: the operand's
  /// memory, which no warp reads.
  template <bool kAverages>
  __device__ __forceinline__ void store(unsigned char* staged, const UnitSample<Shape>& sample, int begin, int count) const {
    float* const own = reinterpret_cast<float*>(staged) + warp * 16 * kPitch;
    const Rows rows(*this, begin);
#pragma unroll
    for (int part = 0; part < Base::kPositions / kColumns; ++part) {
      const bool exists = first + part * kColumns + rows.column < count;
      float4 added[4], other[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) added[r] = ptx::load_or_zero(four_at(sample.x, rows.place(part, r)), exists);
      if constexpr (kAverages) {
#pragma unroll
        for (int r = 0; r < 4; ++r) other[r] = ptx::load_or_zero(four_at(sample.other, rows.place(part, r)), exists);
      }
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const int from = part * 16 + i;
        *reinterpret_cast<float2*>(own + (lane / 4 + i / 2 % 2 * 8) * kPitch + i / 4 * 8 + 2 * (lane % 4)) =
            make_float2(sums[from], sums[from + 1]);
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float4 sum = *reinterpret_cast<const float4*>(own + (rows.row + 4 * r) * kPitch + rows.column);
        float4 y = make_float4(added[r].x + sum.x, added[r].y + sum.y, added[r].z + sum.z, added[r].w + sum.w);
        if constexpr (kAverages) y = averaged(sample.average, other[r], y);
        if (exists) __stcs(four_at(sample.out, rows.place(part, r)), y);
      }
      __syncwarp();
    }
  }

 private:
  /// A lane's places in a part of what a warp stores: four of each of four rows.
  struct Rows {
    int row, column;
    std::uint32_t length, at;
    __device__ __forceinline__ Rows(const UnitF32SumsOfChannels& sums, int begin)
        : length(static_cast<std::uint32_t>(sums.tiling.length)) {
      int own = sums.lane;
      ptx::opaque(own);  // else the places are computed early, and take registers from the products
      row = own / 8, column = own % 8 * 4;
      at = static_cast<std::uint32_t>(sums.channel + row) * length + static_cast<std::uint32_t>(begin + sums.first + column);
    }
    [[nodiscard]] __device__ __forceinline__ std::uint32_t place(int part, int r) const {
      return at + static_cast<std::uint32_t>(4 * r) * length + static_cast<std::uint32_t>(part * kColumns);
    }
  };
};

template <class Shape>
struct UnitF32SumsOfPositions : UnitSumsOfPositions<__half, Shape> {
  using Base = UnitSumsOfPositions<__half, Shape>;
  using Base::kBlocks, Base::kSteps, Base::first, Base::position, Base::lane, Base::sums, Base::tiling, Base::to_middle;
  static constexpr int kChannels = Shape::kChannels;
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
  __device__ __forceinline__ void prefetch(const float* other, int begin, int count) const {
    const Rows rows(*this, begin);
#pragma unroll
    for (int part = 0; part < Rows::kParts; ++part)
#pragma unroll
      for (int r = 0; r < Rows::kRows; ++r)
        ptx::prefetch_l2(four_at(other, rows.place(part, r)), lane % 8 == 0 && rows.exists(part, count));  // 128 bytes
  }
  template <bool kAverages>
  __device__ __forceinline__ void store(unsigned char* staged, const UnitSample<Shape>& sample, int begin, int count) const {
    const int group = warp / 4;
    float* const own = reinterpret_cast<float*>(staged) + group * kAtOnce * kPitch;
    const auto synchronize = [&] { ptx::named_barrier(2 + group, 128); };
    const Rows rows(*this, begin);
    float4 added[2][Rows::kRows];
    const auto load = [&](int part) {
#pragma unroll
      for (int r = 0; r < Rows::kRows; ++r)
        added[part % 2][r] = rows.exists(part, count) ? __ldg(four_at(sample.x, rows.place(part, r))) : float4{};
    };
    load(0);
#pragma unroll
    for (int part = 0; part < Rows::kParts; ++part) {
      if (part + 1 < Rows::kParts) load(part + 1);
      float4 other[Rows::kRows];
      if constexpr (kAverages) {
#pragma unroll
        for (int r = 0; r < Rows::kRows; ++r)
          other[r] = rows.exists(part, count) ? __ldg(four_at(sample.other, rows.place(part, r))) : float4{};
      }
#pragma unroll
      for (int i = 0; i < 16; ++i)
        own[(i / 4 * 8 + 2 * (lane % 4) + i % 2) * kPitch + warp % 4 * 16 + lane / 4 + i / 2 % 2 * 8] =
            sums[part / Rows::kTimes][part % Rows::kTimes * 16 + i];
      synchronize();
#pragma unroll
      for (int r = 0; r < Rows::kRows; ++r) {
        const float4 sum = *reinterpret_cast<const float4*>(own + (rows.row + 8 * r) * kPitch + rows.column);
        const float4 add = added[part % 2][r];
        float4 y = make_float4(add.x + sum.x, add.y + sum.y, add.z + sum.z, add.w + sum.w);
        if constexpr (kAverages) y = averaged(sample.average, other[r], y);
        if (rows.exists(part, count)) __stcs(four_at(sample.out, rows.place(part, r)), y);
      }
      synchronize();
    }
  }

 private:
  static constexpr int kAtOnce = 32;  // channels
  /// A thread's places in a part of what a warpgroup stores: four of each of kRows rows.
  struct Rows {
    static constexpr int kRows = 4, kTimes = Shape::kChannels / kAtOnce, kParts = kBlocks * kTimes;
    int first, row, column;
    std::uint32_t length, begin;
    __device__ __forceinline__ Rows(const UnitF32SumsOfPositions& sums, int of_block)
        : first(sums.first), length(static_cast<std::uint32_t>(sums.tiling.length)) {
      int own = sums.lane;
      ptx::opaque(own);  // as above
      row = (sums.warp % 4 * 32 + own) / 16, column = own % 16 * 4;
      begin = static_cast<std::uint32_t>(of_block + first + column);
    }
    [[nodiscard]] __device__ __forceinline__ bool exists(int part, int count) const {
      return first + part / kTimes * 64 + column < count;
    }
    [[nodiscard]] __device__ __forceinline__ std::uint32_t place(int part, int r) const {
      return static_cast<std::uint32_t>(part % kTimes * kAtOnce + row + 8 * r) * length + begin +
             static_cast<std::uint32_t>(part / kTimes * 64);
    }
  };
};

template <class Shape>
using UnitF32Sums = std::conditional_t<Shape::kOfPositions, UnitF32SumsOfPositions<Shape>, UnitF32SumsOfChannels<Shape>>;

/// Stores `count` outputs of a block from `begin` on.
template <bool kMayAverage, class Sums, class Shape>
__device__ __forceinline__ void store_unit_sums(const Sums& sums, unsigned char* staged, const UnitSample<Shape>& sample,
                                                int begin, int count) {
  if constexpr (kMayAverage) {
    if (sample.other != nullptr) return sums.template store<true>(staged, sample, begin, count);
  }
  sums.template store<false>(staged, sample, begin, count);
}

/// Asks for what the outputs of a block are averaged with.
template <class Sums>
__device__ __forceinline__ void prefetch_unit_average(const Sums& sums, const UnitAverage& average, const UnitBlock& block) {
  if (average.other == nullptr) return;
  const UnitTiling& tiling = sums.tiling;
  const std::int64_t sample = static_cast<std::int64_t>(block.sample) * Sums::kChannels * tiling.length;
  sums.prefetch(static_cast<const float*>(average.other) + sample, block.begin, min(tiling.tile, tiling.length - block.begin));
}

}  // namespace polyphase::cuda::tensor_core
