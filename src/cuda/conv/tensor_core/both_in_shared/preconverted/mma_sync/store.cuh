#pragma once
// Stores a block's sums as rows of the output, through the shared memory of the stages.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/preconverted/store.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/pipeline/untouched.cuh"

namespace polyphase::cuda::tensor_core {

/// What a block writes: columns of group g from `column`, positions from `position` of all samples.
struct MmaPlace {
  std::int64_t g, column, position;
};

/// kColumnWarps x kPositionWarps warps of 64 columns x kWarpPositions positions each. Shared memory holds rows of numbers
/// before the activation. Interleaved: a row has all classes of a channel, with the misalignment of the output row. Otherwise
/// each column has a row.
template <class T, int kColumnWarps, int kPositionWarps, int kWarpPositions>
struct MmaStore {
  const TapGemm& gemm;
  const PreconvertedTiling& tiling;
  ScaledFinish finish;
  const T* __restrict__ bias;
  T* __restrict__ out;
  T* memory;
  int warps_of_pass;  // warps along positions per pass: as many as have room for their sums

  static constexpr int kWarps = kColumnWarps * kPositionWarps;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  using Sums = float[4][kWarpPositions / 8][4];

  /// Positions of one pass. `flat` is the first of them; it is position `in_sample` of sample n. t0: the output element of
  /// class 0.
  struct Pass {
    int positions, period, pitch;  // of shared memory
    std::uint32_t flat, n;
    std::int64_t in_sample, t0;
  };

  /// Overwrites `sums`. Called by the whole block; its stages must not be in use after its next barrier.
  __device__ __forceinline__ void store(const MmaPlace& place, Sums& sums) const {
    if (place.column >= gemm.columns) return;
    add_bias(place, sums);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int gap = static_cast<int>(gemm.out_gcd), classes = static_cast<int>(gemm.classes);
    const std::int64_t first_channel = tiling.by_classes.divide(static_cast<std::uint32_t>(place.column));
    Pass pass;
    pass.positions = warps_of_pass * kWarpPositions;
    pass.period = tiling.interleaved ? classes * gap : 1;
    pass.pitch = pass.period * pass.positions + kVector;
#pragma unroll 1
    for (int i = 0; i * warps_of_pass < kPositionWarps; ++i) {
      pass.flat = static_cast<std::uint32_t>(place.position + i * pass.positions);
      pass.n = tiling.source.by_sample.divide(pass.flat);
      if (pass.n >= gemm.N) return;
      pass.in_sample = pass.flat - pass.n * tiling.source.by_sample.divisor;
      pass.t0 = gemm.out_stride * (pass.in_sample + tiling.source.position_begin) + gemm.out_origin;
      __syncthreads();
      if (tiling.interleaved && gap > 1) fill(place, pass, first_channel);
      const int own_warp = warp / kColumnWarps - i * warps_of_pass;
      if (own_warp >= 0 && own_warp < warps_of_pass) put(place, pass, first_channel, own_warp * kWarpPositions, sums);
      __syncthreads();
      if (tiling.interleaved)
        write_runs(place, pass, first_channel);
      else
        write_columns(place, pass);
    }
  }

 private:
  __device__ __forceinline__ float bias_of(const MmaPlace& place, std::int64_t channel) const {
    return bias != nullptr && channel < gemm.out_channels ? static_cast<float>(bias[place.g * gemm.out_channels + channel])
                                                          : 0.0F;
  }
  __device__ __forceinline__ std::int64_t channel_of(const MmaPlace& place, int own) const {
    const int warp = static_cast<int>(threadIdx.x) / 32 % kColumnWarps;
    return tiling.by_classes.divide(static_cast<std::uint32_t>(place.column + warp * tiling.usable + own));
  }
  /// Element index of output (n, channel of the group, 0).
  __device__ __forceinline__ std::int64_t row_of(std::uint32_t n, std::int64_t g, std::int64_t channel) const {
    return ((static_cast<std::int64_t>(n) * gemm.G + g) * gemm.out_channels + channel) * gemm.out_length;
  }
  __device__ __forceinline__ static int misaligned(const T* to) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(to) / sizeof(T)) & (kVector - 1);
  }
  __device__ __forceinline__ std::int64_t channels_left(std::int64_t first_channel) const {
    const std::int64_t channels = tiling.by_classes.divide(static_cast<std::uint32_t>(tiling.usable)) * kColumnWarps;
    return min(channels, gemm.out_channels - first_channel);
  }

  __device__ __forceinline__ void add_bias(const MmaPlace& place, Sums& sums) const {
    const int row = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float offset = bias_of(place, channel_of(place, i * 8 + row));
#pragma unroll
      for (int j = 0; j < kWarpPositions / 8; ++j) {
        float* two = &sums[i / 2][j][i % 2 * 2];
        two[0] = finish.linear(two[0], offset);
        two[1] = finish.linear(two[1], offset);
      }
    }
  }

  /// Writes a warp's sums to shared memory; its positions begin at `first`.
  __device__ __forceinline__ void put(const MmaPlace& place, const Pass& pass, std::int64_t first_channel, int first,
                                      const Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, at = (first + 2 * (lane % 4)) * pass.period;
    const int column_warp = static_cast<int>(threadIdx.x) / 32 % kColumnWarps;
    const T* const row0 = out + row_of(pass.n, place.g, first_channel) + pass.t0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int own = i * 8 + lane / 4;
      if (own >= tiling.usable) continue;
      T* to = memory + at;
      if (tiling.interleaved) {
        const auto channel = static_cast<int>(channel_of(place, own) - first_channel);
        const int a = column_warp * tiling.usable + own - channel * static_cast<int>(gemm.classes);
        to += channel * pass.pitch + a * static_cast<int>(gemm.out_gcd) + misaligned(row0 + channel * gemm.out_length);
      } else {
        to += (column_warp * kPreconvertedSubtile + own) * pass.pitch;
      }
#pragma unroll
      for (int j = 0; j < kWarpPositions / 8; ++j, to += 8 * pass.period) {
        to[0] = static_cast<T>(sums[i / 2][j][i % 2 * 2]);
        to[pass.period] = static_cast<T>(sums[i / 2][j][i % 2 * 2 + 1]);
      }
    }
  }

  /// Fills all rows with the value of outputs that no tap reaches.
  __device__ __forceinline__ void fill(const MmaPlace& place, const Pass& pass, std::int64_t first_channel) const {
    const auto channels = static_cast<int>(channels_left(first_channel));
#pragma unroll 1
    for (int c = static_cast<int>(threadIdx.x) / 32; c < channels; c += kWarps) {
      const T nothing = static_cast<T>(bias_of(place, first_channel + c));
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x) % 32; i < pass.pitch; i += 32) memory[c * pass.pitch + i] = nothing;
    }
    __syncthreads();
  }

  /// `channel` is relative to the group.
  __device__ __forceinline__ void write(const MmaPlace& place, T value, std::int64_t channel, T* to) const {
    const Epilogue& epilogue = finish.epilogue;
    *to =
        epilogue.is_needed() ? epilogue.finish<T>(static_cast<float>(value), place.g * gemm.out_channels + channel, to) : value;
  }

  /// Writes elements [first, last) of a run in shared memory; `to` has the same alignment. Both begin a vector `shift` elements
  /// before the run.
  __device__ __forceinline__ static void write_run(const T* from, T* to, int shift, int first, int last) {
    constexpr int kStep = 32 * kVector;
    const int skipped = (first + shift) / kStep * kStep + static_cast<int>(threadIdx.x) % 32 * kVector;
    from += skipped;
    to += skipped;
#pragma unroll 2
    for (int at = skipped - shift; at < last; at += kStep, from += kStep, to += kStep) {
      if (at >= first && at + kVector <= last) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          if (at + i >= first && at + i < last) to[i] = from[i];
      }
    }
  }

  /// Writes elements [first, last) of the runs, which belong to sample n; element 0 is the output element t0.
  __device__ __forceinline__ void write_piece(const MmaPlace& place, const Pass& pass, std::int64_t first_channel,
                                              std::uint32_t n, std::int64_t t0, int first, int last) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const auto channels = static_cast<int>(channels_left(first_channel));
    first = static_cast<int>(max(-t0, static_cast<std::int64_t>(first)));
    last = static_cast<int>(min(gemm.out_length - t0, static_cast<std::int64_t>(last)));
    const bool is_plain = !finish.epilogue.is_needed();
    const T* laid = out + row_of(pass.n, place.g, first_channel + warp) + pass.t0;  // shared memory has the same alignment
    T* row = out + row_of(n, place.g, first_channel + warp) + t0;
    const T* from = memory + warp * pass.pitch;
    const std::int64_t step = kWarps * gemm.out_length;
#pragma unroll 1
    for (int c = warp; c < channels; c += kWarps, from += kWarps * pass.pitch, laid += step, row += step) {
      const int shift = misaligned(laid);
      if (is_plain && misaligned(row) == shift) {
        write_run(from, row - shift, shift, first, last);
      } else {
#pragma unroll 1
        for (int i = first + lane; i < last; i += 32) write(place, from[shift + i], first_channel + c, row + i);
      }
    }
  }

  /// Writes sample by sample: the positions between two samples belong to neither.
  __device__ __forceinline__ void write_runs(const MmaPlace& place, const Pass& pass, std::int64_t first_channel) const {
    const int period = pass.period, pitch = static_cast<int>(tiling.source.by_sample.divisor);
    std::uint32_t n = pass.n;
    auto own = static_cast<int>(pass.in_sample);
#pragma unroll 1
    for (int begin = 0; begin < pass.positions && n < gemm.N; ++n) {
      const int end = min(pass.positions, begin + static_cast<int>(tiling.sample_positions) - own);
      const std::int64_t t0 = gemm.out_stride * (own - begin + tiling.source.position_begin) + gemm.out_origin;
      write_piece(place, pass, first_channel, n, t0, begin * period, end * period);
      begin += pitch - own;
      own = 0;
    }
  }

  /// Writes any classes, dilation and phases without taps, element by element.
  __device__ __forceinline__ void write_columns(const MmaPlace& place, const Pass& pass) const {
    const int items = kColumnWarps * kPreconvertedSubtile * pass.positions;
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x); item < items; item += kWarps * 32) {
      const int row = item / pass.positions, p = item - row * pass.positions;
      const int column_warp = row / kPreconvertedSubtile, own = row % kPreconvertedSubtile;
      const std::int64_t column = place.column + column_warp * tiling.usable + own;
      const std::uint32_t n = tiling.source.by_sample.divide(pass.flat + static_cast<std::uint32_t>(p));
      const std::int64_t in_sample = pass.flat + static_cast<std::uint32_t>(p) - n * tiling.source.by_sample.divisor;
      if (own >= tiling.usable || column >= gemm.columns || n >= gemm.N || in_sample >= tiling.sample_positions) continue;
      const std::uint32_t channel = tiling.by_classes.divide(static_cast<std::uint32_t>(column));
      const std::int64_t a = column - channel * gemm.classes;
      const std::int64_t t0 = gemm.out_stride * (in_sample + tiling.source.position_begin) + gemm.out_origin;
      const std::int64_t t = t0 + a * gemm.out_class_step;
      T* to = out + row_of(n, place.g, channel);
      if (t >= 0 && t < gemm.out_length) write(place, memory[row * pass.pitch + p], channel, to + t);
      for_untouched(
          gemm, t0, a, [&] { return static_cast<T>(bias_of(place, channel)); },
          [&](std::int64_t untouched, T nothing) { write(place, nothing, channel, to + untouched); });
    }
  }
};

}  // namespace polyphase::cuda::tensor_core
