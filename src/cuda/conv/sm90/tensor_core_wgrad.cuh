#pragma once
// The weight gradient on wgmma (sm_90a): w[ci, co, k] = sum over n, i of x[n, ci, i] * y[n, co, S*i + k*D - P_l].
//
// gemm_m = ci, gemm_n = co, gemm_k = (n, i), one product for every tap. Both operands are tiles of operand_tile.cuh, where a
// tap is another start address or another plane; x is held in registers through a step and serves all taps. A block sums a
// fixed slice of the positions into partial sums; reduce_slices adds the slices in order. The tensor cores cut sums off instead
// of rounding them, so every step of 64 positions is added up in ordinary arithmetic.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/sm90/operand_tile.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_steps.hpp"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

struct WgradPlace {
  std::int64_t g, row, column, tap;  // first of the block
  std::int64_t slice, first_chunk, last_chunk;
};

__device__ __forceinline__ WgradPlace wgrad_place(std::int64_t block, const WgradSteps& steps, int taps_of_problem) {
  WgradPlace place;
  place.slice = block / steps.jobs;
  std::int64_t job = block % steps.jobs;
  place.tap = job % steps.tap_tiles * steps.taps;
  job /= steps.tap_tiles;
  place.column = job % steps.column_tiles * kWgradColumns;
  job /= steps.column_tiles;
  place.row = job % steps.row_tiles * steps.rows;
  place.g = job / steps.row_tiles;
  // The last tile moves back instead of reaching past the taps: what it repeats it computes to the same bits.
  place.tap = max(static_cast<std::int64_t>(0), min(place.tap, static_cast<std::int64_t>(taps_of_problem - steps.taps)));
  place.first_chunk = place.slice * steps.chunks_per_slice;
  place.last_chunk = min(place.first_chunk + steps.chunks_per_slice, steps.chunks);
  return place;
}

/// What cannot be split exactly in a thread's share.
struct Inexact {
  std::uint32_t small = 0, never = 0;
  __device__ __forceinline__ void add(Split split, std::uint32_t count) {
    small += split == Split::small ? count : 0;
    never |= split == Split::never ? 1 : 0;
  }
};

/// Loads and stores one whole tile, a batch ahead.
template <class Operand>
__device__ __forceinline__ void make_tile_now(const TileMaker<Operand>& maker, const Fetch<typename Operand::Source>& fetch,
                                              unsigned char* to, int thread, Inexact& inexact) {
  using Maker = TileMaker<Operand>;
  constexpr int kAdvance = Maker::kBatch * kProducers;
  typename Operand::Source even[Maker::kBatch][Maker::kVector], odd[Maker::kBatch][Maker::kVector];
  constexpr std::uint32_t kCount = Maker::kBatch * Maker::kVector;
  maker.load(fetch, thread, even);
  for (int item = thread; item < maker.tile.items; item += 2 * kAdvance) {
    maker.load(fetch, item + kAdvance, odd);
    inexact.add(maker.store(to, item, even), kCount);
    maker.load(fetch, item + 2 * kAdvance, even);
    inexact.add(maker.store(to, item + kAdvance, odd), kCount);
  }
}

template <class T>
__device__ __forceinline__ Fetch<T> fetch_x(const ConvProblem& problem, const WgradSteps& steps, const WgradPlace& place,
                                            std::int64_t n, std::int64_t i0, const T* x) {
  const std::int64_t channels = problem.C_in / problem.G;
  const T* base = x + (n * problem.C_in + place.g * channels + place.row) * problem.L_in + i0;
  return make_fetch(steps.x, base, i0, problem.L_in, channels - place.row, 1);
}
template <class T>
__device__ __forceinline__ Fetch<T> fetch_y(const ConvProblem& problem, const WgradSteps& steps, const WgradPlace& place,
                                            std::int64_t n, std::int64_t i0, const T* y) {
  const std::int64_t channels = problem.C_out / problem.G;
  const std::int64_t e0 = problem.S * i0 + place.tap * problem.D - problem.P_l;
  const T* base = y + (n * problem.C_out + place.g * channels + place.column) * problem.L_out + e0;
  return make_fetch(steps.y, base, e0, problem.L_out, channels - place.column, problem.K - place.tap);
}

/// A lane's address for load_transposed of rows (gemm_m) 16*warp.. of 64 and gemm_k 0..15 of a tile.
__device__ __forceinline__ std::uint32_t fragment_offset(int warp, int lane, std::uint32_t pitch) {
  const int block = lane / 8;  // (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows 8-15, k 8-15)
  return static_cast<std::uint32_t>(2 * warp + block % 2) * pitch + static_cast<std::uint32_t>(lane % 8 + block / 2 * 8) * 16;
}

/// One step: sums = x * y for every tap, from the positions first .. last (multiples of 16). Waits for the tensor cores.
template <class Operand, int kTaps>
__device__ __forceinline__ void multiply_step(const WgradSteps& steps, std::uint32_t x, std::uint32_t y, int first, int last,
                                              int warp, int lane, float (&sums)[kTaps][kWgradColumns / 2]) {
  using Mma = ptx::WgmmaRegisters<Operand::kType, kWgradColumns>;
  const auto x_pitch = static_cast<std::uint32_t>(kChunk * 16), y_pitch = static_cast<std::uint32_t>(steps.y.window * 16);
  const auto x_part = static_cast<std::uint32_t>(steps.x.items * 16), y_part = static_cast<std::uint32_t>(steps.y.items * 16);
  const std::uint32_t tap_bytes = steps.shared ? static_cast<std::uint32_t>(steps.tap_step * 16)
                                               : static_cast<std::uint32_t>(kWgradColumns / Operand::kVector) * y_pitch;
  const std::uint32_t from = x + fragment_offset(warp, lane, x_pitch);
  std::uint32_t high[2][4], low[2][4];
  if constexpr (Operand::kSplit) {
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      if (k * 16 < first || k * 16 >= last) continue;
      if (k * 16 >= first + 32) ptx::wgmma_wait<1>();
      ptx::load_transposed(from + static_cast<std::uint32_t>(k * 256), high[k % 2]);
      ptx::load_transposed(from + x_part + static_cast<std::uint32_t>(k * 256), low[k % 2]);
      ptx::wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const std::uint64_t b = ptx::transposed_descriptor(
            y + static_cast<std::uint32_t>(tap) * tap_bytes + static_cast<std::uint32_t>(k * 256), y_pitch);
        Mma::multiply(sums[tap], low[k % 2], b, k * 16 != first);
        Mma::multiply(sums[tap], high[k % 2], b + (y_part >> 4), true);
      }
      ptx::wgmma_commit();
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      ptx::settle(sums[tap]);
#pragma unroll
      for (int i = 0; i < kWgradColumns / 2; ++i) sums[tap][i] *= 1.0F / kLowScale;
      ptx::settle(sums[tap]);
    }
  }
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    if (k * 16 < first || k * 16 >= last) continue;
    if (k * 16 >= first + 32) ptx::wgmma_wait<1>();
    ptx::load_transposed(from + static_cast<std::uint32_t>(k * 256), high[k % 2]);
    ptx::wgmma_fence();
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const std::uint64_t b = ptx::transposed_descriptor(
          y + static_cast<std::uint32_t>(tap) * tap_bytes + static_cast<std::uint32_t>(k * 256), y_pitch);
      Mma::multiply(sums[tap], high[k % 2], b, Operand::kSplit || k * 16 != first);
    }
    ptx::wgmma_commit();
  }
  ptx::wgmma_wait<0>();
}

/// Writes a warp's 16 x 64 sums of each tap: partial[slice][C_in][C_out/G][K].
template <int kTaps>
__device__ __forceinline__ void store_partial(const ConvProblem& problem, const WgradPlace& place, std::int64_t slice,
                                              int own_row, int lane, int exponent, float* __restrict__ partial,
                                              const float (&total)[kTaps][kWgradColumns / 2]) {
  const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
  partial += slice * problem.C_in * out * problem.K;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = place.row + own_row + lane / 4 + half * 8;
    if (row >= in) continue;
#pragma unroll
    for (int i = 0; i < kWgradColumns / 8; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int64_t column = place.column + 8 * i + 2 * (lane % 4) + c;
        if (column >= out) continue;
        float* to = partial + ((place.g * in + row) * out + column) * problem.K + place.tap;
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) to[tap] = ldexpf(total[tap][4 * i + 2 * half + c], exponent);
      }
    }
  }
}

template <class Operand, int kTaps>
__global__ void __launch_bounds__(384, 1)
    wgrad_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ WgradSteps steps,
                 const typename Operand::Source* __restrict__ x, const typename Operand::Source* __restrict__ y,
                 float* __restrict__ partial, WgradState* __restrict__ state) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  unsigned char* memory = raw + (base - ptx::shared_address(raw));
  const std::uint32_t barriers = base + static_cast<std::uint32_t>(steps.stages * steps.stage_bytes);
  const auto full = [&](int stage) { return barriers + static_cast<std::uint32_t>(stage) * 16; };
  const auto empty = [&](int stage) { return barriers + static_cast<std::uint32_t>(stage) * 16 + 8; };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < steps.stages; ++stage) {
      ptx::mbarrier_init(full(stage), kProducers);
      ptx::mbarrier_init(empty(stage), 8);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const WgradPlace place = wgrad_place(blockIdx.x, steps, static_cast<int>(problem.K));
  const int x_exponent = Operand::kSplit ? scale_exponent(state->x_largest, kSourceTarget) : 0;
  const int y_exponent = Operand::kSplit ? scale_exponent(state->y_largest, kSourceTarget) : 0;
  int stage = 0;
  std::uint32_t parity = 0;
  const auto next = [&] {
    if (++stage < steps.stages) return;
    stage = 0;
    parity ^= 1;
  };
  if (threadIdx.x < kProducers) {
    ptx::registers_down<56>();
    const int thread = static_cast<int>(threadIdx.x);
    const TileMaker<Operand> x_maker{steps.x, SplitRange(x_exponent), power_of_two(x_exponent)};
    const TileMaker<Operand> y_maker{steps.y, SplitRange(y_exponent), power_of_two(y_exponent)};
    Inexact inexact;
    std::int64_t n = place.first_chunk / steps.chunks_per_row, i = (place.first_chunk - n * steps.chunks_per_row) * kChunk;
    for (std::int64_t chunk = place.first_chunk; chunk < place.last_chunk; ++chunk) {
      ptx::mbarrier_wait(empty(stage), parity ^ 1);
      unsigned char* to = memory + stage * steps.stage_bytes;
      make_tile_now(x_maker, fetch_x(problem, steps, place, n, i, x), to, thread, inexact);
      make_tile_now(y_maker, fetch_y(problem, steps, place, n, i, y), to + steps.x_bytes, thread, inexact);
      ptx::fence_async_shared();
      ptx::mbarrier_arrive(full(stage));
      next();
      i += kChunk;
      if (i >= problem.L_in) i = 0, ++n;
    }
    if constexpr (Operand::kSplit) {
      if (inexact.small != 0) atomicAdd(&state->small, inexact.small);
      if (inexact.never != 0) atomicMax(&state->never, 1U);
    }
    return;
  }
  ptx::registers_up<224>();
  const int group = (static_cast<int>(threadIdx.x) - kProducers) / 128;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const bool turns = steps.rows == 64;
  const int first = turns ? group * 32 : 0, last = turns ? first + 32 : kChunk;
  const std::uint32_t own = turns ? 0 : static_cast<std::uint32_t>(group * (64 / Operand::kVector) * kChunk * 16);
  float sums[kTaps][kWgradColumns / 2] = {}, total[kTaps][kWgradColumns / 2] = {};
  for (std::int64_t chunk = place.first_chunk; chunk < place.last_chunk; ++chunk) {
    const std::uint32_t at = base + static_cast<std::uint32_t>(stage * steps.stage_bytes);
    ptx::mbarrier_wait(full(stage), parity);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) ptx::settle(sums[tap]);
    multiply_step<Operand, kTaps>(steps, at + own, at + static_cast<std::uint32_t>(steps.x_bytes), first, last, warp, lane,
                                  sums);
    if (lane == 0) ptx::mbarrier_arrive(empty(stage));
    next();
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      ptx::settle(sums[tap]);
#pragma unroll
      for (int i = 0; i < kWgradColumns / 2; ++i) total[tap][i] += sums[tap][i];
    }
  }
  store_partial<kTaps>(problem, place, turns ? 2 * place.slice + group : place.slice,
                       turns ? warp * 16 : group * 64 + warp * 16, lane, -x_exponent - y_exponent, partial, total);
#endif
}

}  // namespace polyphase::cuda::tensor_core
