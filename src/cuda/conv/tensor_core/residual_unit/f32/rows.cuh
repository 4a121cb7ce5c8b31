#pragma once
// A depthwise first convolution of a residual unit: FFMA over rows of activated source in shared memory, of f32 whatever the
// unit's dtype is. Numbers of 16 bits are rounded after each step.

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/activation.cuh"
#include "cuda/conv/tensor_core/residual_unit/f32/source.cuh"
#include "cuda/ptx/opaque.cuh"

namespace polyphase::cuda::tensor_core {

/// The convolution: weights (C, taps), bias (C) or null.
template <class T>
struct UnitDepthwise {
  const T *weights, *bias;
};

/// table[tap][channel] = the weights, and the biases after the last tap.
template <int kChannels, class T>
__device__ __forceinline__ void load_unit_taps(const UnitDepthwise<T>& conv, int taps, float* table, int thread, int threads) {
  for (int i = thread; i < kChannels * taps; i += threads)
    table[i] = cuda::convert<float>(conv.weights[i % kChannels * taps + i / kChannels]);
  for (int i = thread; i < kChannels; i += threads)
    table[kChannels * taps + i] = conv.bias != nullptr ? cuda::convert<float>(conv.bias[i]) : 0.0F;
}

/// v rounded to T.
template <class T>
__device__ __forceinline__ float rounded_to(float v) {
  if constexpr (sizeof(T) == 4) return v;
  return cuda::convert<float>(cuda::convert<T>(v));
}

/// Stores pieces of a block's activated source as rows; positions outside the sample are zeros.
template <class Shape, class T>
__device__ __forceinline__ void store_unit_rows(const UnitF32Source<Shape, T>& source, const UnitTiling& tiling,
                                                const UnitBlock& block, float* rows, int lane) {
#pragma unroll
  for (int i = 0; i < UnitF32Source<Shape, T>::kPieces; ++i) {
    const int piece = source.first + i * Shape::kWarps, at = piece / Shape::kVectors * 32 + lane;
    const int position = block.begin - tiling.before + at;
    if (piece >= tiling.pieces) continue;
    float* const to = rows + piece % Shape::kVectors * 8 * Shape::kRowPitch + at;
    const bool exists = position >= 0 && position < tiling.length;
#pragma unroll
    for (int c = 0; c < 8; ++c) to[c * Shape::kRowPitch] = exists ? rounded_to<T>(source.values[i][c]) : 0.0F;
  }
}

/// A warp's part of the middle: all its pieces are of one vector of channels.
template <class Shape>
struct UnitRowSums : UnitF32Pieces<Shape, Shape::kPositions / 32 * Shape::kVectors / Shape::kWarps> {
  using Base = UnitF32Pieces<Shape, Shape::kPositions / 32 * Shape::kVectors / Shape::kWarps>;
  using Base::kPieces, Base::values;
  static_assert(Shape::kWarps % Shape::kVectors == 0);
  static constexpr int kApart = 32 * Shape::kWarps / Shape::kVectors;  // positions from a piece to the next
  int vector, position;

  __device__ __forceinline__ UnitRowSums(int warp, int lane) : Base(warp) {
    ptx::opaque(warp);  // as in make_unit_rows()
    ptx::opaque(lane);
    this->first = warp, vector = warp % Shape::kVectors, position = warp / Shape::kVectors * 32 + lane;
  }
  /// values = the sums of the taps, in their order, and the biases, rounded to T.
  template <class T>
  __device__ __forceinline__ void convolve(const UnitTiling& tiling, const float* rows, const float* table) {
    const float* from = rows + vector * 8 * Shape::kRowPitch + position;
    const float* weights = table + vector * 8;
#pragma unroll
    for (auto& piece : values)
#pragma unroll
      for (float& value : piece) value = 0;
#pragma unroll 1
    for (int tap = 0; tap < tiling.row_taps; ++tap, from += tiling.row_step, weights += Shape::kChannels) {
      const Vector own(weights);
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
#pragma unroll
        for (int c = 0; c < 8; ++c) values[i][c] = fmaf(from[c * Shape::kRowPitch + i * kApart], own.of[c], values[i][c]);
    }
    const Vector biases(weights);
#pragma unroll
    for (auto& piece : values)
#pragma unroll
      for (int c = 0; c < 8; ++c) piece[c] = rounded_to<T>(piece[c] + biases.of[c]);
  }
  /// Activates the first `count` positions of the block, the others become zeros. Returns the largest magnitude.
  template <class Activation>
  __device__ __forceinline__ float activate(const Activation& activation, int count, bool& is_unfit) {
    float largest = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) {  // the parameters of a channel at a time
      const SnakeOne of = activation.of(vector * 8 + c);
      float own[kPieces];
#pragma unroll
      for (int i = 0; i < kPieces; ++i) own[i] = position + i * kApart < count ? values[i][c] : 0.0F;
      activation.apply(
          own, [&](int) { return of; }, is_unfit);
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        largest = fmaxf(largest, fabsf(own[i]));
        values[i][c] = own[i];
      }
    }
    return largest;
  }
  /// Stores the numbers rounded to T, of 16 bits, as the operand.
  template <class T>
  __device__ __forceinline__ void store_rounded(const UnitTiling& tiling, unsigned char* operand) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float* const own = values[i];
      *reinterpret_cast<uint4*>(operand + (vector * tiling.pitch + position + i * kApart) * 16) =
          make_uint4(rounded_word<T>(own[0], own[1]), rounded_word<T>(own[2], own[3]), rounded_word<T>(own[4], own[5]),
                     rounded_word<T>(own[6], own[7]));
    }
  }

 private:
  /// The numbers of a vector of channels.
  struct Vector {
    float of[8];
    __device__ __forceinline__ explicit Vector(const float* from) {
      const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + 4);
      of[0] = low.x, of[1] = low.y, of[2] = low.z, of[3] = low.w;
      of[4] = high.x, of[5] = high.y, of[6] = high.z, of[7] = high.w;
    }
  };
};

/// Loads and activates a block's source and stores it as rows. Waits before it, for warps that stage outputs there.
template <class Shape, class T, class Activation, class Synchronize>
__device__ __forceinline__ void make_unit_rows(const UnitTiling& tiling, const T* __restrict__ x, const UnitBlock& block,
                                               const Activation& activation, float* rows, int warp, int lane, bool& is_unfit,
                                               const Synchronize& synchronize) {
  ptx::opaque(warp);  // else what follows from them is computed early, and takes registers from the products
  ptx::opaque(lane);
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    UnitF32Source<Shape, T> source(warp, half);
    static_cast<void>(source.load(tiling, x, block, activation, lane, is_unfit));
    if (half == 0) synchronize();
    store_unit_rows(source, tiling, block, rows, lane);
  }
}

}  // namespace polyphase::cuda::tensor_core
