#pragma once
// Stores a warpgroup's 64 columns of sums as rows of the output, through shared memory.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/matrices.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/aux_finish.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/output_run.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/place.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/pipeline/untouched.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mma.cuh"

namespace polyphase::cuda::tensor_core {

/// Floats from column to column of what stage_next_sums() stages.
inline constexpr int kStagedPitch = 33;

/// memory[column * kStagedPitch + position] = a warpgroup's next sums: of 64 columns and 32 positions. The ones after them are
/// next then.
template <int kSums>
__device__ __forceinline__ void stage_next_sums(float* memory, int barrier, int thread, float (&sums)[kSums]) {
  const int own = thread / 32 * 16 + thread % 32 / 4, j = 2 * (thread % 4);
  ptx::named_barrier(barrier, 128);
#pragma unroll
  for (int i = 0; i < 16; ++i) memory[(own + i % 4 / 2 * 8) * kStagedPitch + i / 4 * 8 + j + i % 2] = sums[i];
    // Shifts the next numbers to where the loop reads them: registers cannot be indexed.
#pragma unroll
  for (int i = 0; i + 16 < kSums; ++i) sums[i] = sums[i + 16];
  ptx::named_barrier(barrier, 128);
}

/// Sums of thread (warp, lane): columns 16*warp + lane/4 and that + 8, positions 8*g + 2*(lane%4) and the next (PTX ISA).
/// kWithAux: it can add an aux operand; sums of slices, which are few outputs, do without.
template <class T, int kN, int kStagedBytes, bool kWithAux = true>
struct PreconvertedStore {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kStagedMost = kStagedBytes / static_cast<int>(sizeof(T));
  static constexpr bool kFinishesWithAux = kWithAux;
  static constexpr int kStaged = kN < kStagedMost ? kN : kStagedMost;  // positions at a time

  const TapGemm& gemm;
  const PreconvertedTiling& tiling;
  ScaledFinish finish;
  const T* __restrict__ bias;
  T* __restrict__ out;
  unsigned char* staging;  // of the warpgroup
  int thread;              // in the warpgroup
  int barrier;

  __device__ __forceinline__ float bias_of(const PreconvertedPlace& place, std::int64_t channel) const {
    return bias != nullptr && channel < gemm.out_channels ? static_cast<float>(bias[place.g * gemm.out_channels + channel])
                                                          : 0.0F;
  }
  /// Element index of output (n, channel of the group, 0).
  __device__ __forceinline__ std::int64_t row_of(std::uint32_t n, std::int64_t g, std::int64_t channel) const {
    return ((static_cast<std::int64_t>(n) * gemm.G + g) * gemm.out_channels + channel) * gemm.out_length;
  }

  struct Where {
    std::uint32_t n;
    std::int64_t in_sample, t0;  // t0: the element of class 0 in its row
  };
  __device__ __forceinline__ Where where(std::int64_t flat_position) const {
    Where at;
    const auto flat = static_cast<std::uint32_t>(flat_position);
    at.n = tiling.source.by_sample.divide(flat);
    at.in_sample = flat - at.n * tiling.source.by_sample.divisor;
    at.t0 = gemm.out_stride * (at.in_sample + tiling.source.position_begin) + gemm.out_origin;
    return at;
  }

  using Run = OutputRun<T>;
  __device__ __forceinline__ Run make_run(const Where& at, std::int64_t g, std::int64_t channel, int offset, int length) const {
    const std::int64_t zero = 0, all = length;
    return {out + (row_of(at.n, g, channel) + at.t0) - offset, static_cast<int>(min(max(zero, -at.t0), all)) + offset,
            static_cast<int>(max(min(all, gemm.out_length - at.t0), zero)) + offset};
  }
  /// The pitch of the runs. With channels of eight columns it makes a warp's stores use different banks.
  template <bool kByWarps>
  __device__ __forceinline__ int pitch_of(int classes) const {
    int words = 4;
    if (kByWarps && sizeof(T) == 4 && classes <= 2) words = 8 * classes;
    if (kByWarps && sizeof(T) == 2 && classes <= 4) words = 4 * classes;
    return kStaged * classes + words * 4 / static_cast<int>(sizeof(T));
  }

  /// If a channel's classes fill its row, runs are assembled in shared memory and copied from there during the next tile's
  /// products. If channels end at every eighth column, each warp handles its 16 columns; else the whole warpgroup works
  /// together.
  template <bool kByWarps, int kSums>
  __device__ __forceinline__ void store_interleaved(const PreconvertedPlace& place, const float (&sums)[kSums]) const {
    const int classes = static_cast<int>(gemm.classes), warp = thread / 32, lane = thread % 32;
    const int pitch = pitch_of<kByWarps>(classes);
    const std::int64_t first_channel =
        tiling.by_classes.divide(static_cast<std::uint32_t>(place.column + (kByWarps ? warp * 16 : 0)));
    const auto columns = static_cast<std::uint32_t>(kByWarps ? 16 : tiling.usable);
    const auto channels =
        static_cast<int>(min(static_cast<std::int64_t>(tiling.by_classes.divide(columns)), gemm.out_channels - first_channel));
    T* memory = reinterpret_cast<T*>(staging + (kByWarps ? warp * preconverted_staging_of_warp(kStagedBytes) : 0));
#pragma unroll
    for (int pass = 0; pass < kN / kStaged; ++pass) {
      // Lane r of each warp handles channel r. The staging has the misalignment of the channel's row.
      const Where at = where(place.position + pass * kStaged);
      const int shift = lane < channels ? misaligned(out + (row_of(at.n, place.g, first_channel + lane) + at.t0)) : 0;
      bool has_aux = false, brought = false;
      if constexpr (kByWarps && kFinishesWithAux) has_aux = finish.epilogue.has_aux();
      if constexpr (kByWarps && kFinishesWithAux && sizeof(T) == 4) {
        brought = has_aux && is_brought(at);
        if (brought) {
          if (pass > 0) bring(place, pass);
          wait_for_brought();
          stage_with_aux(memory, pitch, channels, shift, pass, sums);
        }
      }
      if (!brought) {
        ptx::bulk_wait_read();  // the previous contents have been read
        meet<kByWarps>();
        stage<kByWarps, Aux::nothing>(memory, pitch, channels, shift, pass, sums);
      }
      ptx::fence_async_shared();
      meet<kByWarps>();
      write_pass<kByWarps>(place, pass, memory, pitch, first_channel, channels, shift, has_aux && !brought);
    }
  }

  /// Writes the staged runs of a pass, which begin `shift` elements into their rows of the staging.
  template <bool kByWarps>
  __device__ __forceinline__ void write_pass(const PreconvertedPlace& place, int pass, T* memory, int pitch,
                                             std::int64_t first_channel, int channels, int shift, bool lacks_aux) const {
    const int classes = static_cast<int>(gemm.classes), lane = thread % 32;
    int begin = 0;  // position in the runs; usually all belong to one sample
    do {
      const Where here = where(place.position + pass * kStaged + begin);
      if (here.n >= gemm.N) break;
      const auto in_sample = static_cast<int>(min(here.in_sample, static_cast<std::int64_t>(0x3fffffff)));
      const auto valid =
          static_cast<int>(min(tiling.sample_positions - here.in_sample, static_cast<std::int64_t>(kStaged - begin)));
      Run run{};
      if (lane < channels && valid > 0)
        run = make_run(here, place.g, first_channel + lane, shift + begin * classes, valid * classes);
      if constexpr (kByWarps && kFinishesWithAux) {
        if (lacks_aux) {
          finish_runs(run, memory, pitch, channels);
          ptx::fence_async_shared();
          __syncwarp();
        }
      }
      if (valid > 0) write_runs<kByWarps>(run, memory, pitch, channels, classes, thread);
      begin += static_cast<int>(tiling.source.by_sample.divisor) - in_sample;
    } while (begin < kStaged);
    ptx::bulk_commit();
  }

  /// store_interleaved() of 16-bit outputs with one class, where rows begin at whole vectors: matrices of 8 channels and 8
  /// positions. Few instructions, which matters for code that runs once per tile.
  template <int kSums>
  __device__ __forceinline__ void store_by_matrices(const PreconvertedPlace& place, const float (&sums)[kSums]) const {
    constexpr int kPitch = kStaged + 8;
    const int warp = thread / 32, lane = thread % 32;
    const std::int64_t first = place.column + warp * 16;
    const auto channels = static_cast<int>(min(static_cast<std::int64_t>(16), gemm.out_channels - first));
    T* const memory = reinterpret_cast<T*>(staging + warp * preconverted_staging_of_warp(kStagedBytes));
    const std::uint32_t row =
        ptx::shared_address(memory) + static_cast<std::uint32_t>((lane % 16 * kPitch + lane / 16 * 8) * 2);
    const bool has_aux = kFinishesWithAux && finish.epilogue.has_aux();
#pragma unroll
    for (int pass = 0; pass < kN / kStaged; ++pass) {
      const bool brought = has_aux && is_brought(where(place.position + pass * kStaged));
      if (brought) {
        if (pass > 0) bring(place, pass);
        wait_for_brought();
        if constexpr (kFinishesWithAux)
          stage_matrices(row, pass, sums, [](std::uint32_t word, std::uint32_t other) { return added_word<T>(word, other); });
      } else {
        ptx::bulk_wait_read();  // the previous contents have been read
        __syncwarp();
        const auto slope = static_cast<float>(finish.epilogue.slope);
        if (activates_matrices())
          stage_matrices(row, pass, sums, [slope](std::uint32_t word) { return leaky_word<T>(word, slope); });
        else
          stage_matrices(row, pass, sums, [](std::uint32_t word) { return word; });
      }
      ptx::fence_async_shared();
      __syncwarp();
      write_pass<true>(place, pass, memory, kPitch, first, channels, 0, has_aux && !brought);
    }
  }
  /// Stages what `finished` makes of each word; its second argument, if any, is the word of the aux operand in the staging.
  template <int kSums, class Finished>
  __device__ __forceinline__ void stage_matrices(std::uint32_t row, int pass, const float (&sums)[kSums],
                                                 const Finished& finished) const {
#pragma unroll
    for (int step = 0; step < kStaged / 16; ++step) {
      const std::uint32_t at = row + static_cast<std::uint32_t>(step * 32);
      std::uint32_t words[4];
      round_matrices<T>(sums, pass * (kStaged / 16) + step, words);
      if constexpr (std::is_invocable_v<Finished, std::uint32_t>) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = finished(words[i]);
      } else {
        std::uint32_t others[4];
        ptx::load_matrices(others, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = finished(words[i], others[i]);
      }
      ptx::store_matrices(at, words);
    }
  }
  /// Whether store_by_matrices() is for this place. Uniform in a warpgroup.
  __device__ __forceinline__ bool is_of_matrices(const Where& at) const {
    return sizeof(T) == 2 && tiling.by_warps && gemm.classes == 1 && gemm.out_length % kVector == 0 &&
           misaligned(out + at.t0) == 0;
  }
  /// Whether store_by_matrices() activates.
  __device__ __forceinline__ bool activates_matrices() const {
    const Epilogue& epilogue = finish.epilogue;
    return !epilogue.has_aux() && epilogue.activation == Activation::leaky_relu && epilogue.slope > 0 && epilogue.slope <= 1;
  }

  template <bool kByWarps>
  __device__ __forceinline__ void meet() const {
    if constexpr (kByWarps)
      __syncwarp();
    else
      ptx::named_barrier(barrier, 128);
  }

  template <bool kByWarps, Aux kAux, int kSums>
  __device__ __forceinline__ void stage(T* memory, int pitch, int channels, int shift_of_lane, int pass,
                                        const float (&sums)[kSums]) const {
    const int classes = static_cast<int>(gemm.classes), warp = thread / 32, lane = thread % 32;
    const int own = (kByWarps ? 0 : warp * 16) + lane / 4, q = lane % 4;
    // Eight neighbouring floats: half of the lanes begin with the second of their two positions, to avoid bank conflicts.
    const bool swaps = kByWarps && sizeof(T) == 4 && classes == 8 && q >= 2;
    const int one = swaps ? classes : 0, other = classes - one;
    const AuxFinish<T> with_aux(finish.epilogue);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto channel = static_cast<int>(tiling.by_classes.divide(static_cast<std::uint32_t>(own + 8 * h)));
      const int shift = __shfl_sync(0xffffffffU, shift_of_lane, channel % 32);
      if (channel >= channels) continue;
      T* to = memory + channel * pitch + own + 8 * h - channel * classes + 2 * q * classes + shift;
#pragma unroll
      for (int i = 0; i < kStaged / 8; ++i, to += 8 * classes) {
        const int from = (pass * (kStaged / 8) + i) * 4 + 2 * h;
        if constexpr (kAux != Aux::nothing) {
          to[0] = with_aux.template finished<kAux>(sums[from], to[0]);
          to[1] = with_aux.template finished<kAux>(sums[from + 1], to[1]);
        } else {
          to[one] = static_cast<T>(swaps ? sums[from + 1] : sums[from]);
          to[other] = static_cast<T>(swaps ? sums[from] : sums[from + 1]);
        }
      }
    }
  }

  /// The same for outputs with an aux operand, which is in the staging. One instance per case, with as few instructions as
  /// possible: code that runs once per tile misses the instruction cache, a dozen cycles per instruction.
  template <int kSums>
  __device__ __forceinline__ void stage_with_aux(T* memory, int pitch, int channels, int shift, int pass,
                                                 const float (&sums)[kSums]) const {
    const Epilogue& epilogue = finish.epilogue;
    if (epilogue.derivative != 0)
      stage<true, Aux::derivative>(memory, pitch, channels, shift, pass, sums);
    else if (epilogue.activation != Activation::none)
      stage<true, Aux::activated_sum>(memory, pitch, channels, shift, pass, sums);
    else
      stage<true, Aux::sum>(memory, pitch, channels, shift, pass, sums);
  }

  /// The distance to the aux operand that is loaded into the staging (stride 1): the residual, or the result that gives the
  /// derivative.
  __device__ __forceinline__ std::int64_t distance() const { return finish.epilogue.residual | finish.epilogue.derivative; }
  /// Whether a pass of a tile is whole rows of one sample and the aux operand has the same alignment. In 16 bits: whether its
  /// vectors of 8 positions are.
  __device__ __forceinline__ bool is_brought(const Where& at) const {
    if constexpr (sizeof(T) == 2) return distance() % 16 == 0 && tiling.whole_vectors && is_of_matrices(at);
    return distance() % 16 == 0 && at.n < gemm.N && at.in_sample + kStaged <= tiling.sample_positions && at.t0 >= 0 &&
           at.t0 + kStaged <= gemm.out_length;
  }
  /// Starts to load it for a warp's 16 columns, during the products.
  __device__ __forceinline__ void bring(const PreconvertedPlace& place, int pass) const {
    const std::int64_t first = place.column + thread / 32 * 16;
    const auto channels = static_cast<int>(min(static_cast<std::int64_t>(16), gemm.out_channels - first));
    if (!is_brought(where(place.position + pass * kStaged)) || channels <= 0) return;
    ptx::bulk_wait_read();  // the previous contents have been read
    __syncwarp();
    if constexpr (sizeof(T) == 2)
      bring_vectors(place, pass, first, channels);
    else
      bring_rows(place, pass, first, channels);
  }
  /// A lane loads a vector of each row, those that are in a sample.
  __device__ __forceinline__ void bring_vectors(const PreconvertedPlace& place, int pass, std::int64_t first,
                                                int channels) const {
    const int lane = thread % 32;
    const Where at = where(place.position + pass * kStaged + lane * kVector);
    if (lane * kVector >= kStaged || at.n >= gemm.N || at.in_sample >= tiling.sample_positions) return;
    const T* from = Epilogue::aux(out + row_of(at.n, place.g, first) + at.t0, distance());
    std::uint32_t to = ptx::shared_address(staging + thread / 32 * preconverted_staging_of_warp(kStagedBytes)) +
                       static_cast<std::uint32_t>(lane) * 16;
#pragma unroll 1
    for (int row = 0; row < channels; ++row) {
      ptx::copy_vector(to, from);
      from += gemm.out_length;
      to += static_cast<std::uint32_t>(pitch_of<true>(1)) * 2;
    }
  }
  /// Vectors at both ends contain elements of other tiles.
  __device__ __forceinline__ void bring_rows(const PreconvertedPlace& place, int pass, std::int64_t first, int channels) const {
    constexpr int kVectors = kStaged / kVector;  // per row; one more if the row begins inside a vector
    static_assert(kVectors <= 32);
    const int lane = thread % 32, pitch = pitch_of<true>(1);
    const Where at = where(place.position + pass * kStaged);
    const T* from = Epilogue::aux(out + row_of(at.n, place.g, first) + at.t0, distance());
    std::uint32_t to = ptx::shared_address(staging + thread / 32 * preconverted_staging_of_warp(kStagedBytes));
#pragma unroll 1
    for (int row = 0; row < channels; ++row) {
      const int shift = misaligned(from);
      if (lane < kVectors) ptx::copy_vector(to + static_cast<std::uint32_t>(lane) * 16, from - shift + lane * kVector);
      if (shift != 0 && lane == row) ptx::copy_vector(to + kVectors * 16, from - shift + kVectors * kVector);
      from += gemm.out_length;
      to += static_cast<std::uint32_t>(pitch * static_cast<int>(sizeof(T)));
    }
  }
  /// Waits until it is loaded, for all lanes.
  static __device__ __forceinline__ void wait_for_brought() {
    ptx::copy_commit();
    ptx::copy_wait<0>();
    __syncwarp();
  }

  /// Finishes sums in the staging that have no epilogue yet, where tiles meet the ends of rows. A warp reads two rows at a
  /// time.
  __device__ __forceinline__ void finish_runs(const Run& run, T* memory, int pitch, int channels) const {
    constexpr int kRows = 2, kItems = kStaged / 32;
    const int lane = thread % 32;
    const StoreFinish<T> with_aux(finish.epilogue);
    const auto base_bits = reinterpret_cast<unsigned long long>(run.base);
#pragma unroll 1
    for (int row = 0; row < channels; row += kRows) {
      Epilogue::Others<float> others[kRows][kItems];
      int first[kRows], last[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const T* const base = reinterpret_cast<const T*>(__shfl_sync(0xffffffffU, base_bits, row + r));
        first[r] = __shfl_sync(0xffffffffU, run.first, row + r) + lane, last[r] = __shfl_sync(0xffffffffU, run.last, row + r);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int at = first[r] + 32 * i;
          others[r][i] = at < last[r] ? with_aux.others(base + at) : with_aux.nothing();
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        T* const own = memory + (row + r) * pitch;
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int at = first[r] + 32 * i;
          if (at < last[r]) own[at] = static_cast<T>(with_aux(static_cast<float>(own[at]), others[r][i]));
        }
      }
    }
  }

  /// Writes any classes, dilation and phases without taps, element by element: four numbers g of every j at a time.
  template <int kSums>
  __device__ __forceinline__ void store_scattered(const PreconvertedPlace& place, float (&sums)[kSums]) const {
    float* memory = reinterpret_cast<float*>(staging);
    const int lane = thread % 32;
    const auto classes = static_cast<std::uint32_t>(gemm.classes);
#pragma unroll 1
    for (int pass = 0; pass < kSums / 16; ++pass) {
      stage_next_sums(memory, barrier, thread, sums);
      const Where here = where(place.position + pass * 32 + lane);
      if (here.n >= gemm.N || here.in_sample >= tiling.sample_positions) continue;
      for (int c = thread / 32; c < tiling.usable && place.column + c < gemm.columns; c += 4) {
        const std::uint32_t channel = tiling.by_classes.divide(static_cast<std::uint32_t>(place.column) + c);
        const std::uint32_t a = static_cast<std::uint32_t>(place.column) + c - channel * classes;
        T* to = out + row_of(here.n, place.g, channel);
        const std::int64_t t = here.t0 + a * gemm.out_class_step;
        if (t >= 0 && t < gemm.out_length) to[t] = static_cast<T>(memory[c * kStagedPitch + lane]);
        for_untouched(
            gemm, here.t0, a, [&] { return static_cast<T>(finish.epilogue.apply(bias_of(place, channel))); },
            [&](std::int64_t untouched, T nothing) { to[untouched] = nothing; });
      }
    }
  }

  /// Overwrites `sums`.
  template <int kSums>
  __device__ __forceinline__ void store(const PreconvertedPlace& place, float (&sums)[kSums]) const {
    if (place.column >= gemm.columns) return;
    const auto column =
        static_cast<std::uint32_t>(place.column) + static_cast<std::uint32_t>(thread / 32 * 16 + thread % 32 / 4);
    finish.template scale<T>(sums, bias_of(place, tiling.by_classes.divide(column)),
                             bias_of(place, tiling.by_classes.divide(column + 8)));
    store_scaled(place, sums);
  }
  /// The same for sums that have their scale and offset. `place` has columns.
  template <int kSums>
  __device__ __forceinline__ void store_scaled(const PreconvertedPlace& place, float (&sums)[kSums]) const {
    if constexpr (sizeof(T) == 2) {
      if (is_of_matrices(where(place.position))) {
        if (!finish.epilogue.has_aux() && !activates_matrices()) finish.template activate<T>(sums);
        return store_by_matrices(place, sums);
      }
    }
    if (!finish.epilogue.has_aux()) finish.template activate<T>(sums);
    store_finished(place, sums);
  }
  /// The same for sums that are activated too, unless there is an aux operand.
  template <int kSums>
  __device__ __forceinline__ void store_finished(const PreconvertedPlace& place, float (&sums)[kSums]) const {
    if (!tiling.interleaved)
      store_scattered(place, sums);
    else if (tiling.by_warps)
      store_interleaved<true>(place, sums);
    else
      store_interleaved<false>(place, sums);
  }
};

}  // namespace polyphase::cuda::tensor_core
