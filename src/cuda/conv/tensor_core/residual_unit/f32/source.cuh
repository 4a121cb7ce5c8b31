#pragma once
// A block's source of a residual unit of f32: loaded to registers, activated, scaled, and stored as the operand.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/marked_number.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/scale.cuh"
#include "cuda/conv/tensor_core/residual_unit/kernel.cuh"

namespace polyphase::cuda::tensor_core {

/// Pieces of 32 positions and 8 channels that a warp has in registers: a lane has a position of each.
template <class Shape, int kCount>
struct UnitF32Pieces {
  static constexpr int kPieces = kCount;
  float values[kPieces][8];
  int first;  ///< piece of this warp

  __device__ __forceinline__ explicit UnitF32Pieces(int piece) : first(piece) {}
  /// Stores the scaled numbers. Returns how many have lost bits.
  [[nodiscard]] __device__ __forceinline__ int store(const UnitTiling& tiling, unsigned char* operand, const BlockScale& scale,
                                                     int lane) {
    if (scale.is_raised) {
#pragma unroll
      for (auto& piece : values)
#pragma unroll
        for (float& value : piece) value *= BlockScale::kRaise;
    }
    ScaledWords words(scale.by);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int piece = first + i * Shape::kWarps, position = piece / Shape::kVectors * 32 + lane;
      uint4 vector;
      auto* const to = reinterpret_cast<uint4*>(operand + (piece % Shape::kVectors * tiling.pitch + position) * 16);
      if constexpr (Shape::kOperands == 2) {
        uint4 low;
        vector.x = words.split(values[i][0], values[i][1], low.x);
        vector.y = words.split(values[i][2], values[i][3], low.y);
        vector.z = words.split(values[i][4], values[i][5], low.z);
        vector.w = words.split(values[i][6], values[i][7], low.w);
        if (position < tiling.pitch) to[UnitLayout<Shape>::operand_bytes(tiling) / 16] = low;
      } else {
        vector.x = words(values[i][0], values[i][1]);
        vector.y = words(values[i][2], values[i][3]);
        vector.z = words(values[i][4], values[i][5]);
        vector.w = words(values[i][6], values[i][7]);
      }
      if (position < tiling.pitch) *to = vector;
    }
    int small = 0;
    if (words.has_small()) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
#pragma unroll
        for (int c = 0; c < 8; ++c) small += words.is_small(values[i][c]) ? 1 : 0;
    }
    return small;
  }
  /// Stores the scaled numbers as MarkedNumber: an operand of vectors of 4 channels.
  __device__ __forceinline__ void store_marked(const UnitTiling& tiling, unsigned char* operand, float scale, int lane) const {
    using Number = MarkedNumber<Shape>;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int piece = first + i * Shape::kWarps, position = piece / Shape::kVectors * 32 + lane;
      if (position >= tiling.pitch) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const own = values[i] + 4 * half;
        *reinterpret_cast<float4*>(operand + ((piece % Shape::kVectors * 2 + half) * tiling.pitch + position) * 16) =
            make_float4(Number::of(own[0] * scale), Number::of(own[1] * scale), Number::of(own[2] * scale),
                        Number::of(own[3] * scale));
      }
    }
  }
};

/// Half of a warp's pieces of a block's source, of f32 or of 16 bits.
template <class Shape, class T = float>
struct UnitF32Source : UnitF32Pieces<Shape, (Shape::kMostPieces + 1) / 2> {
  using Base = UnitF32Pieces<Shape, (Shape::kMostPieces + 1) / 2>;
  using Base::first, Base::kPieces, Base::values;

  __device__ __forceinline__ UnitF32Source(int warp, int half) : Base(warp + half * Base::kPieces * Shape::kWarps) {}
  /// Loads and activates; numbers outside the sample are zeros. Returns the largest magnitude.
  template <class Activation>
  __device__ __forceinline__ float load(const UnitTiling& tiling, const T* __restrict__ x, const UnitBlock& block,
                                        const Activation& activation, int lane, bool& is_unfit) {
    const int begin = block.begin - tiling.before + lane;
    const auto length = static_cast<std::uint32_t>(tiling.length);
    const auto* const sample =
        reinterpret_cast<const unsigned char*>(x + static_cast<std::int64_t>(block.sample) * Shape::kChannels * tiling.length);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int piece = first + i * Shape::kWarps, position = begin + piece / Shape::kVectors * 32;
      const bool exists = piece < tiling.pieces && position >= 0 && position < tiling.length;
      const std::uint32_t at =
          static_cast<std::uint32_t>(piece % Shape::kVectors * 8) * length + static_cast<std::uint32_t>(exists ? position : 0);
#pragma unroll
      for (std::uint32_t c = 0; c < 8; ++c)
        values[i][c] =
            exists ? cuda::convert<float>(__ldg(reinterpret_cast<const T*>(sample + (at + c * length) * sizeof(T)))) : 0.0F;
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int vector = (first + i * Shape::kWarps) % Shape::kVectors;
      activation.apply(
          values[i], [&](int c) { return activation.of(vector * 8 + c); }, is_unfit);
#pragma unroll
      for (int c = 0; c < 8; ++c) largest = fmaxf(largest, fabsf(values[i][c]));
    }
    return largest;
  }
};

}  // namespace polyphase::cuda::tensor_core
