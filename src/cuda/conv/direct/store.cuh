#pragma once
// Stores of the direct kernels: each warp writes its sums to shared memory by position and stores neighbouring words from
// there. Loops over columns stay rolled, which keeps the register count and the code small.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/ptx/prefetch.cuh"

namespace polyphase::cuda::direct {

/// Where a block works.
struct Place {
  std::int64_t n, g, position, column;
};

/// A warp's part of a block: its first position and column, and its finished sums [thread columns][sum_pitch].
template <class A>
struct WarpTile {
  int lane, position, column;
  A* sums;
};

/// The value stored where no tap reaches: the bias, through the epilogue if it is applied at the store.
template <class T, class A>
__device__ __forceinline__ A without_taps(const TapGemm& gemm, const Place& place, std::int64_t channel,
                                          const T* __restrict__ bias, const Epilogue& epilogue) {
  const std::int64_t index = place.g * gemm.out_channels + channel;
  if (bias == nullptr) return A(0);
  const A sum = static_cast<A>(bias[index]);
  return epilogue.has_aux() ? sum : epilogue.activate<T>(sum, index);
}

/// Whether the outputs of one position are `kRun` neighbours: all classes of one channel, or one class and positions without a
/// tap. With stride 1 the run is one.
__device__ __forceinline__ bool is_run(const TapGemm& gemm, int run, int thread_columns) {
  if (gemm.out_stride != run) return false;
  const bool by_class =
      gemm.classes == run && gemm.out_gcd == 1 && thread_columns % run == 0 && (gemm.out_class_step == 1 || run == 1);
  const bool by_residue = gemm.classes == 1 && gemm.out_gcd == run;
  return by_class || by_residue;
}

/// sums = epilogue(sums + bias) in registers, for activations of a few instructions. Returns whether it was done.
template <class T, class A, int kThreadP, int kThreadC>
__device__ __forceinline__ bool activate_early(const TapGemm& gemm, const Steps& steps, const Place& place, int column,
                                               const T* __restrict__ bias, const Epilogue& epilogue,
                                               A (&sums)[kThreadP][kThreadC]) {
  const bool is_relu = epilogue.activation == Activation::relu;
  if (epilogue.has_aux()) return false;
  if (!is_relu && epilogue.activation != Activation::leaky_relu) return false;
  const A slope = static_cast<A>(epilogue.slope);
#pragma unroll
  for (int c = 0; c < kThreadC; ++c) {
    const std::int64_t channel = steps.by_classes.divide(static_cast<std::uint32_t>(place.column + column + c));
    const bool has_bias = bias != nullptr && channel < gemm.out_channels;
    const A offset = has_bias ? static_cast<A>(bias[place.g * gemm.out_channels + channel]) : A(0);
#pragma unroll
    for (int p = 0; p < kThreadP; ++p) {
      const A value = static_cast<A>(static_cast<T>(sums[p][c] + offset));
      sums[p][c] = value < A(0) ? (is_relu ? A(0) : slope * value) : value;
    }
  }
  return true;
}

/// sums = epilogue(sums + bias).
template <class T, class A, int kWarpP, int kThreadC>
__device__ __forceinline__ void activate(const TapGemm& gemm, const Steps& steps, const Place& place,
                                         const T* __restrict__ bias, const Epilogue& epilogue, const WarpTile<A>& warp) {
#pragma unroll 1
  for (int c = 0; c < kThreadC; ++c) {
    const std::int64_t channel = steps.by_classes.divide(static_cast<std::uint32_t>(place.column + warp.column + c));
    if (channel >= gemm.out_channels) break;
    const std::int64_t index = place.g * gemm.out_channels + channel;
    const A offset = bias != nullptr ? static_cast<A>(bias[index]) : A(0);
#pragma unroll 1
    for (int p = warp.lane; p < kWarpP; p += 32) {
      A& sum = warp.sums[c * sum_pitch(kWarpP) + p];
      sum = epilogue.activate<T>(sum + offset, index);
    }
  }
  __syncwarp();
}

/// Writes a warp's sums if is_run(kRun), 32 neighbouring words together. `added` is the bias that the sums lack.
template <int kRun, class T, class A, int kWarpP, int kThreadC>
__device__ __forceinline__ void store_runs(const TapGemm& gemm, const Place& place, const T* __restrict__ bias,
                                           const T* __restrict__ added, const Epilogue& epilogue, T* __restrict__ out,
                                           const WarpTile<A>& warp) {
  constexpr int kWords = kRun * kWarpP;
  const bool by_class = gemm.out_gcd == 1;  // else only the first of a run has a tap
  const int step = by_class ? kRun : 1;     // columns of a channel
  const std::int64_t t0 = kRun * (place.position + warp.position) + gemm.out_origin;
  const std::int64_t channel0 = (place.column + warp.column) / step;
  const int channels =
      static_cast<int>(max(min(gemm.out_channels - channel0, static_cast<std::int64_t>(kThreadC / step)), std::int64_t{0}));
  const int first = static_cast<int>(min(max(-t0, std::int64_t{0}), std::int64_t{kWords}));
  const int last = static_cast<int>(max(min(gemm.out_length - t0, std::int64_t{kWords}), std::int64_t{0}));
  T* row = out + ((place.n * gemm.G + place.g) * gemm.out_channels + channel0) * gemm.out_length + t0 + warp.lane;
  // Word i + lane: position (i + lane)/kRun, class or residue lane%kRun, since kRun divides 32.
  const int residue = warp.lane % kRun;
  const bool has_tap = by_class || residue == 0;
  const A* from = warp.sums + (by_class ? residue * sum_pitch(kWarpP) : 0) + warp.lane / kRun;
#pragma unroll 1
  for (int c = 0; c < channels; ++c, row += gemm.out_length, from += step * sum_pitch(kWarpP)) {
    const A offset = added != nullptr ? static_cast<A>(added[place.g * gemm.out_channels + channel0 + c]) : A(0);
    const A rest = has_tap ? A(0) : without_taps<T, A>(gemm, place, channel0 + c, bias, epilogue);
    if (first == 0 && last == kWords) {
#pragma unroll 8
      for (int i = 0; i < kWords; i += 32) row[i] = static_cast<T>(has_tap ? from[i / kRun] + offset : rest);
    } else {
#pragma unroll 2
      for (int i = first / 32 * 32; i < last; i += 32) {
        const A value = has_tap ? from[i / kRun] + offset : rest;
        if (i + warp.lane >= first && i + warp.lane < last) row[i] = static_cast<T>(value);
      }
    }
  }
}

/// The same with an epilogue at the store; `run` is 1, 2 or 4. A lane reads the aux operands of kAhead words before it writes
/// any of them.
template <class T, class A, int kWarpP, int kThreadC, class Finish>
__device__ __forceinline__ void store_aux_runs(const TapGemm& gemm, const Place& place, int run, const T* __restrict__ bias,
                                               T* out, const WarpTile<A>& warp, const Finish& finish) {
  constexpr int kAhead = 8;
  const bool by_class = gemm.out_gcd == 1;
  const int step = by_class ? run : 1, words = run * kWarpP;
  const std::int64_t t0 = run * (place.position + warp.position) + gemm.out_origin;
  const std::int64_t channel0 = (place.column + warp.column) / step;
  const auto channels =
      static_cast<int>(max(min(gemm.out_channels - channel0, static_cast<std::int64_t>(kThreadC / step)), std::int64_t{0}));
  const int begin = static_cast<int>(min(max(-t0, std::int64_t{0}), static_cast<std::int64_t>(words)));
  const int end = static_cast<int>(max(min(gemm.out_length - t0, static_cast<std::int64_t>(words)), std::int64_t{0}));
  const int residue = warp.lane % run, shift = run / 2;  // run = 2^shift
  const bool has_tap = by_class || residue == 0;
  const A* own = warp.sums + (by_class ? residue * sum_pitch(kWarpP) : 0);
  std::int64_t channel = place.g * gemm.out_channels + channel0;
  T* row = out + (place.n * gemm.G * gemm.out_channels + channel) * gemm.out_length + t0;
#pragma unroll 1
  for (int c = 0; c < channels; ++c, ++channel, row += gemm.out_length, own += step * sum_pitch(kWarpP)) {
    const A offset = bias != nullptr ? static_cast<A>(bias[channel]) : A(0);
#pragma unroll 1
    for (int word = begin / 32 * 32 + warp.lane; word - warp.lane < end; word += 32 * kAhead) {
      T* const to = row + word;
      const auto exists = [&](int i) { return word + 32 * i >= begin && word + 32 * i < end; };
      Epilogue::Others<A> others[kAhead] = {};
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (exists(i)) others[i] = finish.others(to + 32 * i);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const A sum = (has_tap && exists(i) ? own[(word + 32 * i) >> shift] : A(0)) + offset;
        if (exists(i)) to[32 * i] = finish.result(sum, channel, to + 32 * i, others[i]);
      }
    }
  }
}

/// The epilogue of store_aux_runs(): any, or a light one.
template <class T, class A>
struct AnyFinish {
  const Epilogue& epilogue;
  __device__ __forceinline__ Epilogue::Others<A> others(const T* to) const { return epilogue.others<A>(to); }
  __device__ __forceinline__ T result(A sum, std::int64_t channel, T* to, const Epilogue::Others<A>& other) const {
    return epilogue.finish<T>(sum, channel, to, other);
  }
};
template <class T, class A>
struct LightFinish : LightAuxFinish<T, A> {
  using LightAuxFinish<T, A>::LightAuxFinish;
  __device__ __forceinline__ T result(A sum, std::int64_t /*channel*/, T* /*to*/, const Epilogue::Others<A>& other) const {
    return (*this)(sum, other);
  }
};

/// Prefetches the aux operands of a block's outputs, from `columns` and `positions` on in `samples` samples, so that they are
/// in cache when the outputs are stored.
template <class T>
__device__ __forceinline__ void prefetch_with_aux(const TapGemm& gemm, const Steps& steps, Place place, int positions,
                                                  int columns, const Epilogue& epilogue, const T* out, int samples = 1) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T));
  const std::int64_t channel = steps.by_classes.divide(static_cast<std::uint32_t>(place.column));
  const auto classes = static_cast<int>(gemm.classes);
  const auto rows = static_cast<int>(min(
      gemm.out_channels - channel, static_cast<std::int64_t>((place.column - channel * classes + columns - 1) / classes + 1)));
#pragma unroll 1
  for (int m = 0; m < samples; ++m, ++place.n, place.position -= steps.row_pitch) {
    const std::int64_t t0 = gemm.out_stride * place.position + gemm.out_origin;
    const std::int64_t begin = max(t0, std::int64_t{0}), end = min(t0 + gemm.out_stride * positions, gemm.out_length);
    if (begin >= end) continue;
    const T* const first = out + ((place.n * gemm.G + place.g) * gemm.out_channels + channel) * gemm.out_length + begin;
    const int lines = static_cast<int>(end - begin + kLine - 1) / kLine + 1;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * lines; i += static_cast<int>(blockDim.x)) {
      const int row = i / lines, at = min((i - row * lines) * kLine, static_cast<int>(end - begin) - 1);
      const T* const to = first + row * gemm.out_length + at;
      if (epilogue.residual != 0) ptx::prefetch_l2(Epilogue::aux(to, epilogue.residual));
      if (epilogue.derivative != 0) ptx::prefetch_l2(Epilogue::aux(to, epilogue.derivative));
    }
  }
}

/// Writes a warp's sums for any stride, in the order of the output row.
template <class T, class A, int kWarpP, int kThreadC>
__device__ __forceinline__ void store_phases(const TapGemm& gemm, const Steps& steps, const Place& place,
                                             const T* __restrict__ bias, const T* __restrict__ added, const Epilogue& epilogue,
                                             T* __restrict__ out, const WarpTile<A>& warp) {
  const int classes = static_cast<int>(gemm.classes), stride = static_cast<int>(gemm.out_stride);
  const std::int64_t begin = place.column + warp.column, position = place.position + warp.position;
  const int columns = static_cast<int>(min(static_cast<std::int64_t>(kThreadC), gemm.columns - begin));
  const int positions =
      static_cast<int>(min(static_cast<std::int64_t>(kWarpP), gemm.position_begin + gemm.position_count - position));
  const std::int64_t first_channel = steps.by_classes.divide(static_cast<std::uint32_t>(begin));
  const int skew = static_cast<int>(first_channel * classes - begin);  // <= 0: the channel may begin in the warp before
  const std::int64_t t0 = gemm.out_stride * position + gemm.out_origin;
  const std::int64_t first_row = (place.n * gemm.G + place.g) * gemm.out_channels + first_channel;
  const int skipped = static_cast<int>(max(gemm.position_begin - position, std::int64_t{0}));  // of the sample before
#pragma unroll 1
  for (int i = skipped * stride + warp.lane; i < positions * stride; i += 32) {
    const int p = static_cast<int>(steps.by_stride.divide(static_cast<std::uint32_t>(i)));
    int a = i - p * stride, b = 0;
    if (gemm.out_gcd > 1) {
      const int residue = a;
      a = static_cast<int>(steps.by_gcd.divide(static_cast<std::uint32_t>(residue)));
      b = residue - a * static_cast<int>(gemm.out_gcd);
    }
    const std::int64_t t = t0 + static_cast<std::int64_t>(p) * stride + a * gemm.out_class_step + b;
    if (t < 0 || t >= gemm.out_length) continue;
    const bool has_tap = b == 0 && a < classes;
    T* to = out + first_row * gemm.out_length + t;
    std::int64_t channel = first_channel;
    // A position without a tap is written where its channel begins; a class where its column is.
#pragma unroll 1
    for (int c = skew; c < columns; c += classes, to += gemm.out_length, ++channel) {
      const int own = has_tap ? c + a : c;
      if (own < 0 || own >= columns) continue;
      A value;
      if (has_tap) {
        value = warp.sums[own * sum_pitch(kWarpP) + p];
        if (added != nullptr) value += static_cast<A>(added[place.g * gemm.out_channels + channel]);
      } else {
        value = without_taps<T, A>(gemm, place, channel, bias, epilogue);
      }
      *to = epilogue.has_aux() ? epilogue.finish<T>(value, place.g * gemm.out_channels + channel, to) : static_cast<T>(value);
    }
  }
}

/// Stores the part of a warp's sums that belongs to one sample. `late`: the epilogue is applied at the store.
template <class T, class A, int kWarpP, int kThreadC>
__device__ __forceinline__ void store_sample(const TapGemm& gemm, const Steps& steps, const Place& place,
                                             const T* __restrict__ bias, const T* __restrict__ added, const Epilogue& epilogue,
                                             T* __restrict__ out, const WarpTile<A>& warp) {
  if (epilogue.has_aux()) {
    for (const int run : {1, 2, 4})
      if (is_run(gemm, run, kThreadC)) {
        if (epilogue.is_light_aux())
          return store_aux_runs<T, A, kWarpP, kThreadC>(gemm, place, run, bias, out, warp, LightFinish<T, A>(epilogue));
        return store_aux_runs<T, A, kWarpP, kThreadC>(gemm, place, run, bias, out, warp, AnyFinish<T, A>{epilogue});
      }
    return store_phases<T, A, kWarpP, kThreadC>(gemm, steps, place, bias, added, epilogue, out, warp);
  }
  if (is_run(gemm, 1, kThreadC)) {
    store_runs<1, T, A, kWarpP, kThreadC>(gemm, place, bias, added, epilogue, out, warp);
  } else if (is_run(gemm, 2, kThreadC)) {
    store_runs<2, T, A, kWarpP, kThreadC>(gemm, place, bias, added, epilogue, out, warp);
  } else if (is_run(gemm, 4, kThreadC)) {
    store_runs<4, T, A, kWarpP, kThreadC>(gemm, place, bias, added, epilogue, out, warp);
  } else {
    store_phases<T, A, kWarpP, kThreadC>(gemm, steps, place, bias, added, epilogue, out, warp);
  }
}

/// out = epilogue(sums + bias) for a warp whose sums are in shared memory; `is_active`: they are past the epilogue. A tile of
/// joined rows covers `samples` samples; each stores the outputs of its own row.
template <class T, class A, int kWarpP, int kThreadC>
__device__ __forceinline__ void store_warp(const TapGemm& gemm, const Steps& steps, const Place& place,
                                           const T* __restrict__ bias, const Epilogue& epilogue, bool is_active,
                                           T* __restrict__ out, const WarpTile<A>& warp, int samples = 1) {
  __syncwarp();
  const T* added = is_active ? nullptr : bias;
  if (!is_active && !epilogue.has_aux() && epilogue.activation != Activation::none) {
    activate<T, A, kWarpP, kThreadC>(gemm, steps, place, bias, epilogue, warp);
    added = nullptr;
  }
  Place at = place;
#pragma unroll 1
  for (int m = 0; m < samples; ++m, ++at.n, at.position -= steps.row_pitch)
    store_sample<T, A, kWarpP, kThreadC>(gemm, steps, at, bias, added, epilogue, out, warp);
}

}  // namespace polyphase::cuda::direct
