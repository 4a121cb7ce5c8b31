#pragma once
// Stores the sums of a consumer of kernel.cuh: directly from registers if neighbours are pairs, else through shared memory.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/bias.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/carry.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/producer.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace polyphase::cuda::tensor_core {

/// For an operand and a number of columns: the halves of 64 positions per tile, and how a consumer stores it.
template <class Operand, int kN, int kTaps>
struct Stride1Traits {
  // One half only, if sums and fragments of two would exceed the registers.
  static constexpr bool kIsNarrow = Operand::kParts == 2 && (kN > 32 || kTaps > 3);
  static constexpr int kHalves = kIsNarrow ? 1 : 2;
  static constexpr int kPositions = 64 * kHalves;
  static constexpr int kPass = kN < 128 ? kN : kIsNarrow ? 8 : 32;  // columns staged at a time
  using S = Staged<typename Operand::Source>;
  static constexpr int kPitch = kPositions + (kIsNarrow ? 4 : sizeof(S) == 2 ? 8 : 12);
  // Unaligned reads may go past the end; boxes begin at a multiple of 128.
  static constexpr int kStagingBytes = (kPass * kPitch * static_cast<int>(sizeof(S)) + 64 + 127) / 128 * 128;
  // For tiles that carry: columns at a time, and their bytes with what is kept from tile to tile.
  static constexpr int kCarryPass = kHalves == 1 || kN != 128 ? 0 : sizeof(S) == 2 ? 128 : 32;
  static constexpr int kCarryStaging = kCarryPass * kCarryPositions * static_cast<int>(sizeof(S));
  static constexpr int kCarryBytes = kCarryStaging + kN * kKeptBytes;
};

template <class Mode, int kN>
using TraitsOf = Stride1Traits<typename Mode::Operand, kN, Mode::kTaps>;

/// A thread's sums of a tile. With two parts the sums of the mixed products precede the others, so that they are the first
/// columns of a product of twice the size: only from the first column on does ptxas keep both kinds of product in the same
/// registers.
template <class Mode, int kN>
struct Stride1Sums {
  static constexpr int kHalves = TraitsOf<Mode, kN>::kHalves, kOwn = kN / 2;
  static constexpr int kMixed = Mode::Operand::kParts == 2 ? kOwn : 0;
  static_assert(kMixed == 0 || kHalves == 1);
  float v[kHalves][kMixed + kOwn];
  __device__ __forceinline__ float (&high())[kHalves][kOwn] { return reinterpret_cast<float(&)[kHalves][kOwn]>(v[0][kMixed]); }
  __device__ __forceinline__ float (&mixed())[kOwn] { return reinterpret_cast<float(&)[kOwn]>(v[0][0]); }
  __device__ __forceinline__ float operator()(int m, int i) const {
    return kMixed == 0 ? v[m][i] : fmaf(v[m][i], 1.0F / kLowScale, v[m][kMixed + i]);
  }
  /// Makes high() the complete sums. The rest of the others changes no number if they are added again.
  __device__ __forceinline__ void join() {
    if constexpr (kMixed != 0) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        high()[0][i] = (*this)(0, i);
        mixed()[i] = -0.0F;
      }
    }
  }
};

/// The factor of a tile's sums and their activation.
struct Stride1Finish {
  int exponent;
  bool at_once;  // sum * scale + bias is everything
  float scale;
  /// `activates`: stores apply a light activation themselves.
  __device__ Stride1Finish(const Epilogue& epilogue, int exponent_, bool activates)
      : exponent(exponent_),
        at_once((activates ? LightActivation::is_light(epilogue.activation) : epilogue.activation == Activation::none) &&
                exponent >= -126 && exponent <= 127),
        scale(power_of_two(at_once ? exponent : 0)) {}
};

/// Finishes columns kFirst.. of a thread's sums into the staging of its warpgroup.
template <class Mode, int kN, int kFirst, int kSums>
__device__ __forceinline__ void stage_columns(const float (&sums)[TraitsOf<Mode, kN>::kHalves][kSums],
                                              const Stride1Finish& finish, const float* biases, int position, int lane,
                                              typename TraitsOf<Mode, kN>::S* staging) {
  using Traits = TraitsOf<Mode, kN>;
  using S = typename Traits::S;
  const SumsOf<Mode, Traits::kPass> finished(finish.scale, biases + kFirst, finish.at_once, lane);
  S* to = staging + 2 * (lane % 4) * Traits::kPitch + position;
#pragma unroll
  for (int i = 0; i < Traits::kPass / 8; ++i) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int m = 0; m < Traits::kHalves; ++m) {
        const float* pair = &sums[m][(kFirst / 8 + i) * 4 + b];
        *reinterpret_cast<Pair<S>*>(to + (8 * i + b) * Traits::kPitch + Mode::kHalfStep * m) = {
            static_cast<S>(finished(pair[0], i, b)), static_cast<S>(finished(pair[2], i, b))};
      }
    }
  }
}

/// Finishes a staged number if that takes more than a factor.
template <class Mode>
__device__ __forceinline__ float finish_staged(float staged, const Stride1Finish& finish, const LightActivation& active,
                                               const float* biases, int column) {
  const float value = Mode::kBeginsAtBias ? staged : ldexpf(staged, finish.exponent) + biases[column];
  return active.is_there ? active(value) : value;
}

/// Applies it to a thread's numbers.
template <class Mode, int kN>
__device__ __forceinline__ void finish_columns(const Stride1Finish& finish, const LightActivation& active, const float* biases,
                                               int position, int lane, typename TraitsOf<Mode, kN>::S* staging) {
  using Traits = TraitsOf<Mode, kN>;
  using S = typename Traits::S;
  S* own = staging + 2 * (lane % 4) * Traits::kPitch + position;
#pragma unroll 1
  for (int i = 0; i < Traits::kPass / 4; ++i) {
    const int column = i / 2 * 8 + i % 2;
#pragma unroll 1
    for (int j = 0; j < 2 * Traits::kHalves; ++j) {
      S& value = own[column * Traits::kPitch + Mode::kHalfStep * (j / 2) + j % 2];
      value = static_cast<S>(finish_staged<Mode>(static_cast<float>(value), finish, active, biases, column + 2 * (lane % 4)));
    }
  }
}

/// Stages the columns of pass `pass`: registers cannot be indexed.
template <class Mode, int kN, int kPass, int kSums>
__device__ __forceinline__ void stage_pass(int pass, const float (&sums)[TraitsOf<Mode, kN>::kHalves][kSums],
                                           const Stride1Finish& finish, const float* biases, int position, int lane,
                                           typename TraitsOf<Mode, kN>::S* staging) {
  constexpr int kColumns = TraitsOf<Mode, kN>::kPass;
  if constexpr (kPass * kColumns < kN) {
    if (pass == kPass) return stage_columns<Mode, kN, kPass * kColumns>(sums, finish, biases, position, lane, staging);
    stage_pass<Mode, kN, kPass + 1>(pass, sums, finish, biases, position, lane, staging);
  }
}

/// Stores a tile directly from registers: neighbouring positions are neighbours in rows and inside the tensor. `to`: the
/// thread's first output. Sums are completed one by one between the stores: a burst of stores holds up the other consumer's
/// reads of shared memory.
template <class Mode, int kN, bool kActive, class T>
__device__ __forceinline__ void store_pairs(const Stride1Sums<Mode, kN>& sums, const Stride1Finish& finish,
                                            const LightActivation& active, const float* biases, std::int64_t row_length,
                                            int lane, T* __restrict__ to) {
  const SumsOf<Mode, kN> finished(finish.scale, biases, true, lane);
#pragma unroll
  for (int j = 0; j < kN / 8; ++j, to += 6 * row_length) {
#pragma unroll
    for (int b = 0; b < 2; ++b, to += row_length) {
#pragma unroll
      for (int m = 0; m < sums.kHalves; ++m) {
        float even = finished(sums(m, 4 * j + b), j, b), odd = finished(sums(m, 4 * j + 2 + b), j, b);
        if constexpr (kActive) even = active(even), odd = active(odd);
        if constexpr (sizeof(T) == 2) {
          const Pair<T> pair{static_cast<T>(even), static_cast<T>(odd)};
          __stcs(reinterpret_cast<std::uint32_t*>(to + Mode::kHalfStep * m), *reinterpret_cast<const std::uint32_t*>(&pair));
        } else {
          __stcs(reinterpret_cast<float2*>(to + Mode::kHalfStep * m), make_float2(even, odd));
        }
      }
    }
  }
}

/// The aux operands of two neighbouring outputs, each pair read as one number: a residual, a result that gives a derivative, or
/// both.
template <bool kBoth>
struct AuxPair {
  using Others = StoreFinish<float>::Others;
  float2 first, second{};
  __device__ __forceinline__ void read(const Epilogue& epilogue, const float* to) {
    const auto at = [&](std::int64_t distance) { return __ldcs(reinterpret_cast<const float2*>(Epilogue::aux(to, distance))); };
    first = at(kBoth ? epilogue.residual : epilogue.residual + epilogue.derivative);  // else one of them is zero
    if constexpr (kBoth) second = at(epilogue.derivative);
  }
  /// Those of the even output and of the odd one.
  [[nodiscard]] __device__ __forceinline__ Others even(bool adds) const { return others(first.x, second.x, adds); }
  [[nodiscard]] __device__ __forceinline__ Others odd(bool adds) const { return others(first.y, second.y, adds); }

 private:
  static __device__ __forceinline__ Others others(float one, float other, bool adds) {
    if constexpr (kBoth) return {one, other};
    const Others nothing = StoreFinish<float>::nothing();
    return {adds ? one : nothing.added, adds ? nothing.result : one};
  }
};

/// store_pairs() with an aux operand, which is read kAhead stores ahead into registers that fragments leave free.
template <class Mode, int kN, bool kBoth>
__device__ __forceinline__ void store_pairs_and_aux(const Stride1Sums<Mode, kN>& sums, const Stride1Finish& finish,
                                                    const Epilogue& epilogue, const float* biases, std::int64_t row_length,
                                                    int lane, float* __restrict__ to) {
  constexpr int kHalves = Stride1Sums<Mode, kN>::kHalves, kOfEight = 2 * kHalves, kStores = kN / 8 * kOfEight;
  constexpr int kAhead = kBoth ? 8 / kHalves : 8, kEights = kAhead / kOfEight + 1;
  const StoreFinish<float> with_aux(epilogue);
  const bool adds = epilogue.residual != 0;
  // Store i is that of half i % kHalves of column i / kHalves of the thread's, which has two of every eight.
  const auto behind = [&](int i) -> std::int64_t {
    return i % kHalves < kHalves - 1 ? 0 : i / kHalves % 2 == 0 ? row_length : 7 * row_length;
  };
  AuxPair<kBoth> aux[kAhead];
  SumsOf<Mode, 8> finished[kEights];
  float* ahead = to;
#pragma unroll
  for (int i = -kAhead; i < kStores; ++i) {
    if (i >= 0) {
      const int m = i % kHalves, j = i / kOfEight, b = i / kHalves % 2;
      const auto& own = aux[i % kAhead];
      const auto& whole = finished[j % kEights];
      const float even = with_aux(whole(sums(m, 4 * j + b), 0, b), own.even(adds));
      const float odd = with_aux(whole(sums(m, 4 * j + 2 + b), 0, b), own.odd(adds));
      __stcs(reinterpret_cast<float2*>(to + Mode::kHalfStep * m), make_float2(even, odd));
      to += behind(i);
    }
    if (const int next = i + kAhead; next < kStores) {
      if (next % kOfEight == 0)
        finished[next / kOfEight % kEights] = SumsOf<Mode, 8>(finish.scale, biases + next / kOfEight * 8, true, lane);
      aux[next % kAhead].read(epilogue, ahead + Mode::kHalfStep * (next % kHalves));
      ahead += behind(next);
    }
  }
}

template <class Mode, int kN>
__device__ __forceinline__ void store_pairs_with_aux(const Stride1Sums<Mode, kN>& sums, const Stride1Finish& finish,
                                                     const Epilogue& epilogue, const float* biases, std::int64_t row_length,
                                                     int lane, float* __restrict__ to) {
  if (epilogue.has_both())
    store_pairs_and_aux<Mode, kN, true>(sums, finish, epilogue, biases, row_length, lane, to);
  else
    store_pairs_and_aux<Mode, kN, false>(sums, finish, epilogue, biases, row_length, lane, to);
}

/// Finishes kRows rows of a tile that a warp has just stored as sums with biases; `to`: the address of the first.
template <int kPositions, int kRows>
__device__ __forceinline__ void finish_stored_rows(const TapGemm& gemm, const Epilogue& epilogue, std::int64_t t0, int lane,
                                                   float* to) {
  const StoreFinish<float> with_aux(epilogue);
  const auto begin = static_cast<int>(max(-t0, std::int64_t{0}));
  const auto end = static_cast<int>(min(gemm.out_length - t0, std::int64_t{kPositions}));
  __syncwarp();
#pragma unroll 1
  for (int row = 0; row < kRows; ++row, to += gemm.out_length)
#pragma unroll 1
    for (int at = begin + lane; at < end; at += 32) to[at] = with_aux(to[at], with_aux.others(to + at));
}

/// Prefetches the aux operand, one column per thread, if the tile is inside its rows.
template <int kPositions>
__device__ __forceinline__ void prefetch_aux(const TapGemm& gemm, const TilePlace& place, const Epilogue& epilogue, int thread,
                                             const float* out) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(float));
  const std::int64_t t0 = place.position + gemm.out_origin;
  if (t0 < 0 || t0 + kPositions > gemm.out_length) return;
  const float* const to =
      out + ((place.n * gemm.G + place.g) * gemm.out_channels + place.column + thread) * gemm.out_length + t0;
#pragma unroll
  for (int i = 0; i <= kPositions / kLine; ++i) {
    const float* const own = to + min(i * kLine, kPositions - 1);
    if (epilogue.residual != 0) ptx::prefetch_l2(Epilogue::aux(own, epilogue.residual));
    if (epilogue.derivative != 0) ptx::prefetch_l2(Epilogue::aux(own, epilogue.derivative));
  }
}

}  // namespace polyphase::cuda::tensor_core
