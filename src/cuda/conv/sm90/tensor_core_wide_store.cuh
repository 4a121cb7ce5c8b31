#pragma once
// From a warpgroup's 64 columns of sums to rows of the output, through shared memory.

#include <cstdint>

#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/sm90/operand.cuh"
#include "cuda/conv/sm90/tensor_core_wide_steps.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// value = activation(sum * 2^exponent + offset). Two factors, since no float holds every exponent here.
struct WideFinish {
  float first, second;
  Epilogue epilogue;
  __device__ __forceinline__ WideFinish(int exponent, const Epilogue& epilogue_)
      : first(power_of_two(exponent / 2)), second(power_of_two(exponent - exponent / 2)), epilogue(epilogue_) {}
  __device__ __forceinline__ float linear(float sum, float offset) const { return fmaf(sum * first, second, offset); }

  /// All sums of a thread: those of two columns.
  template <int kSums>
  __device__ __forceinline__ void finish(float (&sums)[kSums], float offset, float offset_of_second) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = linear(sums[i], i % 4 < 2 ? offset : offset_of_second);
    switch (epilogue.activation) {
      case Activation::relu:
        return apply<Activation::relu>(sums);
      case Activation::leaky_relu:
        return apply<Activation::leaky_relu>(sums);
      case Activation::tanh:
        return apply<Activation::tanh>(sums);
      default:
        return;
    }
  }

 private:
  template <Activation kActivation, int kSums>
  __device__ __forceinline__ void apply(float (&sums)[kSums]) const {
    const Epilogue only{kActivation, epilogue.slope};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = only.apply(sums[i]);
  }
};

/// What a warpgroup writes: 64 columns of group g from `column`, positions from `position` of all samples.
struct WidePlace {
  std::int64_t g, column, position;
};

/// Sums of thread (warp, lane): columns 16*warp + lane/4 and that + 8, positions 8*g + 2*(lane%4) and the next (PTX ISA).
template <class T, int kN, int kBlocksPerSm>
struct WideStore {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kPassBytes = wide_pass_bytes(kBlocksPerSm);
  static constexpr int kGroupsOfPass =
      kN / 8 < kPassBytes / (64 * static_cast<int>(sizeof(T))) ? kN / 8 : kPassBytes / (64 * static_cast<int>(sizeof(T)));

  const TapGemm& form;
  const WideSteps& steps;
  WideFinish finish;
  const T* __restrict__ bias;
  T* __restrict__ out;
  unsigned char* staging;  // of the warpgroup
  int thread;              // of the warpgroup
  int barrier;

  __device__ __forceinline__ float bias_of(const WidePlace& place, std::int64_t channel) const {
    return bias != nullptr && channel < form.out_channels ? static_cast<float>(bias[place.g * form.out_channels + channel])
                                                          : 0.0F;
  }
  /// Element index of output (n, channel of the group, 0).
  __device__ __forceinline__ std::int64_t row_of(std::uint32_t n, std::int64_t g, std::int64_t channel) const {
    return ((static_cast<std::int64_t>(n) * form.G + g) * form.out_channels + channel) * form.out_length;
  }

  /// Neighbouring positions of one channel, as they are written: 16 bytes from `base` (an even address) on; elements first to
  /// last of them are the run's own. `broken`: not all of them are one sample's positions.
  struct alignas(16) Run {
    T* base;
    std::int16_t first, last, shift, broken;
  };
  struct Where {
    std::uint32_t n;
    std::int64_t in_sample, t0;  // t0: place of class 0 in its row
  };
  __device__ __forceinline__ Where where(std::int64_t flat_position) const {
    Where at;
    const auto flat = static_cast<std::uint32_t>(flat_position);
    at.n = steps.source.by_sample.divide(flat);
    at.in_sample = flat - at.n * steps.source.by_sample.divisor;
    at.t0 = form.out_stride * (at.in_sample + steps.source.position_begin) + form.out_origin;
    return at;
  }
  __device__ __forceinline__ Run make_run(std::int64_t g, std::int64_t channel, std::int64_t position, int length) const {
    const Where at = where(position);
    T* begin = out + (row_of(at.n, g, channel) + at.t0);
    const auto shift = static_cast<int>((reinterpret_cast<std::uintptr_t>(begin) / sizeof(T)) & (kVector - 1));
    const std::int64_t zero = 0, all = length;
    const std::int64_t first = max(zero, -at.t0), last = min(all, form.out_length - at.t0);
    const bool broken = at.n >= form.N || at.in_sample * form.classes + length > steps.sample_positions * form.classes;
    return {begin - shift, static_cast<std::int16_t>(min(first, all) + shift),
            static_cast<std::int16_t>(max(last, zero) + shift), static_cast<std::int16_t>(shift),
            static_cast<std::int16_t>(broken ? 1 : 0)};
  }

  /// A channel's classes side by side fill its row. By warps, each its columns 16*warp.. and 16*warp + 8.. in turn, where
  /// channels end at every eighth column; else by the whole warpgroup. A pass holds 8*kGroups positions.
  template <bool kByWarps, int kSums>
  __device__ __forceinline__ void store_interleaved(const WidePlace& place, const float (&sums)[kSums]) const {
    constexpr int kGroups = kByWarps ? kGroupsOfPass : kGroupsOfPass / 2;
    constexpr int kThreads = kByWarps ? 32 : 128;
    const int classes = static_cast<int>(form.classes), warp = thread / 32, lane = thread % 32;
    const int own = (kByWarps ? 0 : warp * 16) + lane / 4, q = lane % 4, length = 8 * kGroups * classes;
    const int pitch = length + kVector;  // staging holds a run as far from 16 bytes as the output does
    const Where start = where(place.position);
    const bool ends_sample = start.n >= form.N || start.in_sample + kN > steps.sample_positions;
    Run* table = reinterpret_cast<Run*>(staging + (kByWarps ? warp * wide_staging_of_warp(kBlocksPerSm) : 0));
    T* memory = reinterpret_cast<T*>(table + (kByWarps ? kWideRunsOfWarp : 4 * kWideRunsOfWarp));
#pragma unroll
    for (int half = 0; half < (kByWarps ? 2 : 1); ++half) {
      const std::int64_t column = place.column + (kByWarps ? warp * 16 + half * 8 : 0);
      const std::int64_t first_channel = steps.by_classes.divide(static_cast<std::uint32_t>(column));
      const auto channels = static_cast<int>(
          min(static_cast<std::int64_t>((kByWarps ? 8 : steps.usable) / classes), form.out_channels - first_channel));
#pragma unroll
      for (int pass = 0; pass < kN / 8 / kGroups; ++pass) {
        const std::int64_t position = place.position + pass * kGroups * 8;
        meet<kByWarps>();
        if (thread % kThreads < channels)
          table[thread % kThreads] = make_run(place.g, first_channel + thread % kThreads, position, length);
        meet<kByWarps>();
#pragma unroll
        for (int h = 0; h < (kByWarps ? 1 : 2); ++h) {
          const auto channel = static_cast<int>(steps.by_classes.divide(static_cast<std::uint32_t>(own + 8 * h)));
          if (channel >= channels) continue;
          T* to = memory + channel * pitch + own + 8 * h - channel * classes + 2 * q * classes + table[channel].shift;
#pragma unroll
          for (int i = 0; i < kGroups; ++i, to += 8 * classes) {
            const int at = (pass * kGroups + i) * 4 + 2 * (kByWarps ? half : h);
            to[0] = static_cast<T>(sums[at]);
            to[classes] = static_cast<T>(sums[at + 1]);
          }
        }
        meet<kByWarps>();
        write_runs<kThreads>(table, memory, channels, length);
        if (ends_sample) write_broken<kThreads>(table, memory, place.g, first_channel, position, channels, length);
      }
    }
  }
  template <bool kByWarps>
  __device__ __forceinline__ void meet() const {
    if constexpr (kByWarps)
      __syncwarp();
    else
      ptx::named_barrier(barrier, 128);
  }

  template <int kThreads>
  __device__ __forceinline__ void write_runs(const Run* table, const T* memory, int count, int length) const {
    const int vectors = length / kVector + 1;  // of a run; the last one is empty where it is aligned
    const int first = thread % kThreads, run_step = kThreads / vectors, vector_step = kThreads - run_step * vectors;
    int index = first / vectors, vector = first - index * vectors;
#pragma unroll 1
    while (index < count) {
      const Run run = table[index];
      const int at = vector * kVector;
      const T* from = memory + index * (length + kVector) + at;
      T* to = run.base + at;
      if (run.broken == 0) {
        if (at >= run.first && at + kVector <= run.last) {
          *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        } else {
#pragma unroll
          for (int i = 0; i < kVector; ++i)
            if (at + i >= run.first && at + i < run.last) to[i] = from[i];
        }
      }
      index += run_step;
      vector += vector_step;
      if (vector >= vectors) vector -= vectors, ++index;
    }
  }

  /// Runs that are not all one sample's, sample by sample.
  template <int kThreads>
  __device__ __forceinline__ void write_broken(const Run* table, const T* memory, std::int64_t g, std::int64_t first_channel,
                                               std::int64_t position, int count, int length) const {
    const int classes = static_cast<int>(form.classes), positions = length / classes;
    int begin = 0;  // position in the runs
    while (begin < positions) {
      const Where at = where(position + begin);
      if (at.n >= form.N) return;
      const auto in_sample = static_cast<int>(min(at.in_sample, static_cast<std::int64_t>(0x3fffffff)));
      const auto pitch = static_cast<int>(steps.source.by_sample.divisor);
      const auto valid =
          static_cast<int>(min(steps.sample_positions - at.in_sample, static_cast<std::int64_t>(positions - begin)));
      const std::int64_t zero = 0, all = valid > 0 ? valid * classes : 0;
      const auto first = static_cast<int>(min(max(zero, -at.t0), all));
      const auto last = static_cast<int>(max(min(all, form.out_length - at.t0), zero));
      for (int index = 0; index < count; ++index) {
        T* to = out + (row_of(at.n, g, first_channel + index) + at.t0);
        const T* from = memory + index * (length + kVector) + table[index].shift + begin * classes;
        for (int i = first + thread % kThreads; i < last; i += kThreads) to[i] = from[i];
      }
      begin += min(pitch - in_sample, positions - begin);
    }
  }

  /// Any classes, dilation and phases without taps: element by element, four numbers g of every j at a time.
  template <int kSums>
  __device__ __forceinline__ void store_scattered(const WidePlace& place, float (&sums)[kSums]) const {
    constexpr int kPitch = 33;
    float* memory = reinterpret_cast<float*>(staging);
    const int own = thread / 32 * 16 + thread % 32 / 4, j = 2 * (thread % 4), lane = thread % 32;
    const auto classes = static_cast<std::uint32_t>(form.classes);
#pragma unroll 1
    for (int pass = 0; pass < kSums / 16; ++pass) {
      ptx::named_barrier(barrier, 128);
#pragma unroll
      for (int i = 0; i < 16; ++i) memory[(own + i % 4 / 2 * 8) * kPitch + i / 4 * 8 + j + i % 2] = sums[i];
        // The next numbers move to where the loop finds them: registers have no index.
#pragma unroll
      for (int i = 0; i + 16 < kSums; ++i) sums[i] = sums[i + 16];
      ptx::named_barrier(barrier, 128);
      const Where here = where(place.position + pass * 32 + lane);
      if (here.n >= form.N || here.in_sample >= steps.sample_positions) continue;
      for (int c = thread / 32; c < steps.usable && place.column + c < form.columns; c += 4) {
        const std::uint32_t channel = steps.by_classes.divide(static_cast<std::uint32_t>(place.column) + c);
        const std::uint32_t a = static_cast<std::uint32_t>(place.column) + c - channel * classes;
        T* to = out + row_of(here.n, place.g, channel);
        const std::int64_t t = here.t0 + a * form.out_class_step;
        if (t >= 0 && t < form.out_length) to[t] = static_cast<T>(memory[c * kPitch + lane]);
        fill_untouched(to, here.t0, a, bias_of(place, channel));
      }
    }
  }

  /// Beside class a lie positions that no tap reaches; the last class also has the phases without taps.
  __device__ __forceinline__ void fill_untouched(T* to, std::int64_t t0, std::uint32_t a, float offset) const {
    const std::int64_t end = a + 1 == form.classes ? form.phase_classes : a + 1;
    if (form.out_gcd == 1 && end == a + 1) return;
    const auto nothing = static_cast<T>(finish.epilogue.apply(offset));
    for (std::int64_t b = a; b < end; ++b) {
      for (std::int64_t r = b == a ? 1 : 0; r < form.out_gcd; ++r) {
        const std::int64_t t = t0 + b * form.out_class_step + r;
        if (t >= 0 && t < form.out_length) to[t] = nothing;
      }
    }
  }

  /// `sums` is used up.
  template <int kSums>
  __device__ __forceinline__ void store(const WidePlace& place, float (&sums)[kSums]) const {
    if (place.column >= form.columns) return;
    const auto column =
        static_cast<std::uint32_t>(place.column) + static_cast<std::uint32_t>(thread / 32 * 16 + thread % 32 / 4);
    finish.finish(sums, bias_of(place, steps.by_classes.divide(column)), bias_of(place, steps.by_classes.divide(column + 8)));
    if (!steps.interleaved)
      store_scattered(place, sums);
    else if (steps.by_warps)
      store_interleaved<true>(place, sums);
    else
      store_interleaved<false>(place, sums);
  }
};

}  // namespace polyphase::cuda::tensor_core
