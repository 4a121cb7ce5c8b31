#pragma once
// The weight gradient on wgmma (sm_90a): w[ci, co, k] = sum over n, i of x[n, ci, i] * y[n, co, S*i + k*D - P_l].
//
// gemm_k = (n, i); tiling.hpp says which channels, planes and taps are gemm_m and gemm_n. Three warpgroups, the producers, fill
// operand tiles (words_fill.cuh). Two, the consumers, hold the rows of a step in registers and multiply them with the columns
// at every shift, which is a start address. A block sums a fixed slice of the positions into partial sums; reduce_slices adds
// the slices in order. The tensor cores truncate sums instead of rounding them, so split operands are accumulated in f32 every
// 64 positions.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/conv/tensor_core/wgrad/words_fill.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWgradThreads = kWgradProducers + 256;

struct WgradPlace {
  int group, row_block, column_block, shift;  // of the block's first
  int own_shift;                              // the first that no earlier block has
  int slice;
  std::int64_t first_chunk, last_chunk;
  float* free;  // shared memory for sums of two consumers, by rows
};

__device__ __forceinline__ WgradPlace wgrad_place(std::uint32_t block, const WgradTiling& tiling) {
  const auto jobs = static_cast<std::uint32_t>(tiling.jobs);
  WgradPlace place;
  place.slice = static_cast<int>(block / jobs);
  auto job = static_cast<int>(block % jobs);
  // The last tile moves back instead of exceeding the shifts; it does not store what it repeats.
  place.own_shift = job % tiling.shift_tiles * tiling.shape.shifts;
  place.shift = max(0, min(place.own_shift, tiling.shifts - tiling.shape.shifts));
  job /= tiling.shift_tiles;
  place.column_block = job % tiling.column_tiles * tiling.columns.tile;
  job /= tiling.column_tiles;
  place.row_block = job % tiling.row_tiles * tiling.rows.tile;
  place.group = job / tiling.row_tiles;
  place.first_chunk = place.slice * tiling.chunks_per_slice;
  place.free = nullptr;
  place.last_chunk = min(place.first_chunk + tiling.chunks_per_slice, tiling.chunks);
  return place;
}

/// The look-up data of a block's threads.
struct WgradBlock {
  WgradPlace place;
  WgradOrigin rows, columns;
  std::uint64_t barriers[2 * kWgradStages];
};

/// The addresses of a block's stages and barriers.
struct WgradMemory {
  std::uint32_t base;
  unsigned char* stages;
  WgradBlock& block;
  __device__ __forceinline__ std::uint32_t full(int stage) const { return ptx::shared_address(block.barriers + 2 * stage); }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
};

/// A producer's position among its items: those of the rows, then those of the columns, step by step.
struct WgradCursor {
  int slot = 0;  // within a step
  int left;      // remaining steps

  /// Returns whether a step ended.
  __device__ __forceinline__ bool advance(int slots) {
    if (++slot != slots) return false;
    slot = 0;
    --left;
    return true;
  }
};

/// A producer thread.
template <class Operand>
struct WgradProducer {
  using T = typename Operand::Source;
  const WgradTiling& tiling;
  const WgradBlock& block;
  const WgradMemory& memory;
  const WgradItem* items;      // this thread's
  const std::uint32_t* words;  // its ring
  int rows_slots, slots;       // of its warp
  float rows_scale, columns_scale;
  int n, chunk;  // of the next fetch: sample, chunk of the sample
  WgradCursor ahead, here;
  WgradSource<T> source;
  Ring ring;
  WgradRange range;
  std::uint32_t uppers;  // bit i: the item at i of the ring begins with the upper half of a word

  /// Starts the fetch of the next item to place `at` of the ring; nothing after the last.
  __device__ __forceinline__ void fetch(int at) {
    if (ahead.left != 0) {
      if (ahead.slot == 0) source = source_at<T>(block.rows, n, chunk);
      if (ahead.slot == rows_slots) source = source_at<T>(block.columns, n, chunk);
      // One 16-byte load.
      const int4 bits = *reinterpret_cast<const int4*>(&items[ahead.slot * kWgradProducers]);
      const WgradItem item{static_cast<std::int64_t>(bits.y) << 32 | static_cast<std::uint32_t>(bits.x), bits.z,
                           static_cast<std::uint32_t>(bits.w)};
      const std::uint32_t to = ptx::shared_address(words + at * kWgradProducers * 8);
      const bool upper = WgradFill<Operand>::fetch(item, source, block.rows.tensor, to);
      if constexpr (!Operand::kScaled) uppers = (uppers & ~(1U << at)) | (upper ? 1U << at : 0U);
      if (ahead.advance(slots) && ++chunk == static_cast<int>(tiling.chunks_per_row)) chunk = 0, ++n;
    }
    ptx::copy_commit();
  }

  /// Converts the item at `at`; the first of a step waits for the stage, the last hands it over.
  __device__ __forceinline__ void convert(int at) {
    if (here.slot == 0) ptx::mbarrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
    ptx::copy_wait<kWgradRing - 1>();
    const std::uint32_t to = items[here.slot * kWgradProducers].to;
    const bool is_row = here.slot < rows_slots;
    const int rows_bytes = Operand::kParts * tiling.rows_bytes;
    unsigned char* stage = memory.stages + ring.stage * tiling.stage_bytes + (is_row ? 0 : rows_bytes);
    if ((to & 15) != 0)
      WgradFill<Operand>::convert_words(
          words + at * kWgradProducers * 8, (uppers >> at & 1) != 0,
          ((is_row ? tiling.rows.length : tiling.columns.length) & 1) != 0, is_row ? rows_scale : columns_scale,
          stage + (to & ~15U), is_row ? tiling.rows_bytes : (tiling.stage_bytes - rows_bytes) / Operand::kParts, range);
    if (!here.advance(slots)) return;
    ptx::mbarrier_arrive(memory.full(ring.stage));
    ring.advance(tiling.stages);
  }
};

/// All steps of a block.
template <class Operand>
__device__ __forceinline__ void produce(WgradProducer<Operand>& producer) {
#pragma unroll
  for (int i = 0; i < kWgradRing - 1; ++i) producer.fetch(i);
  while (true) {
#pragma unroll
    for (int i = 0; i < kWgradRing; ++i) {
      producer.fetch((i + kWgradRing - 1) % kWgradRing);
      producer.convert(i);
      if (producer.here.left == 0) return;
    }
  }
}

/// A warp's share of what recompute has to know.
__device__ __forceinline__ void report(const WgradRange& range, const WgradTiling& tiling, WgradScales* scales) {
  const float2 most = __half22float2(range.most);
  const std::uint32_t most_bits = __reduce_max_sync(0xffffffffU, max(__float_as_uint(most.x), __float_as_uint(most.y)));
  const std::uint32_t small = __reduce_add_sync(0xffffffffU, range.small);
  if (threadIdx.x % 32 != 0) return;
  atomicMax(&scales->most, most_bits);
  if (small == 0) return;
  atomicAdd(&scales->small, SmallCount{small});
  atomicAdd(small_of_jobs(scales) + blockIdx.x % static_cast<std::uint32_t>(tiling.jobs), SmallCount{small});
}

/// A lane's address for load_transposed of rows (gemm_m) 16*warp.. of 64 and gemm_k 0..15 of a tile.
__device__ __forceinline__ std::uint32_t fragment_offset(int warp, int lane, std::uint32_t pitch) {
  const int block = lane / 8;  // (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows 8-15, k 8-15)
  return static_cast<std::uint32_t>(2 * warp + block % 2) * pitch + static_cast<std::uint32_t>(lane % 8 + block / 2 * 8) * 16;
}

/// The addresses of a consumer's operands in a stage.
struct WgradOperands {
  std::uint32_t rows, rows_part;  // bytes
  std::uint64_t columns;          // descriptor, of the high halves
  int columns_part, shift_step;   // in units of 16 bytes; from the high halves to the low ones (may be negative)
  /// Shared addresses are short: adding to the lower half does not carry.
  __device__ __forceinline__ std::uint64_t column(int part, int shift, int k) const {
    const auto low =
        static_cast<std::uint32_t>(columns) + static_cast<std::uint32_t>(part * columns_part + shift * shift_step + k * 16);
    return (columns >> 32 << 32) | low;
  }
};

/// total += rows * columns for every shift, over one step, for split numbers, with one set of sums. Calls `rows_read()` when
/// the fragments are in registers, `release()` when the tensor cores are done with the step.
template <class Operand, int kN, int kShifts, class RowsRead, class Release>
__device__ __forceinline__ void multiply_fragments(const WgradOperands& at, const std::uint32_t (&high)[kChunk / 16][4],
                                                   const std::uint32_t (&low)[kChunk / 16][4], RowsRead rows_read,
                                                   Release release, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  constexpr int kSteps = kChunk / 16;
  float sums[kN / 2];
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) {
    ptx::fence_registers(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      Mma::multiply(sums, low[k], at.column(0, shift, k), k != 0);
      Mma::multiply(sums, high[k], at.column(1, shift, k), true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::fence_registers(sums);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) sums[i] *= 1.0F / kLowScale;
    ptx::fence_registers(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) Mma::multiply(sums, high[k], at.column(0, shift, k), true);
    ptx::wgmma_commit();
    if (shift == 0) rows_read();
    ptx::wgmma_wait<0>();
    if (shift == kShifts - 1) release();
    ptx::fence_registers(sums);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total[shift][i] += sums[i];
  }
}

/// The same for rows in shared memory.
template <class Operand, int kN, int kShifts, class Release>
__device__ __forceinline__ void multiply_split(const WgradOperands& at, Release release, float (&total)[kShifts][kN / 2]) {
  constexpr int kSteps = kChunk / 16;
  std::uint32_t high[kSteps][4], low[kSteps][4];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    ptx::load_transposed(at.rows + static_cast<std::uint32_t>(k * 256), high[k]);
    ptx::load_transposed(at.rows + at.rows_part + static_cast<std::uint32_t>(k * 256), low[k]);
  }
  multiply_fragments<Operand, kN, kShifts>(
      at, high, low, [] {}, release, total);
}

/// The same without splitting: the sums stay in the tensor cores, which restart them unless `go_on`.
template <class Operand, int kN, int kShifts, class Release>
__device__ __forceinline__ void multiply_once(const WgradOperands& at, bool go_on, Release release,
                                              float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  constexpr int kSteps = kChunk / 16;
  std::uint32_t rows[kSteps][4];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) ptx::load_transposed(at.rows + static_cast<std::uint32_t>(k * 256), rows[k]);
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) ptx::fence_registers(total[shift]);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int shift = 0; shift < kShifts; ++shift) Mma::multiply(total[shift], rows[k], at.column(0, shift, k), k != 0 || go_on);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  release();
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) ptx::fence_registers(total[shift]);
}

/// Writes a warp's 16 rows of every shift: partial[slice][C_in][C_out/G][K].
template <int kN, int kShifts>
__device__ __forceinline__ void store_partial(const ConvProblem& problem, const WgradTiling& tiling, const WgradPlace& place,
                                              int slice, int own_row, int row_of_block, int lane, float scale,
                                              float scale_again, float* __restrict__ partial,
                                              const float (&total)[kShifts][kN / 2]) {
  const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const std::int64_t row_step = tiling.swapped ? problem.K : out * problem.K;
  const std::int64_t column_step = tiling.swapped ? out * problem.K : problem.K;
  partial += (std::int64_t{slice} * problem.C_in + place.group * in) * out * problem.K;
  const int blocks = min(tiling.columns.blocks - place.column_block, tiling.columns.tile);
  const int first_k = tiling.q * place.shift;
  // Four neighbouring planes are four neighbouring taps.
  const int planes = tiling.columns.planes;
  const bool by_four = planes % 4 == 0 && place.column_block % 4 == 0 && blocks % 4 == 0 && tiling.q % 4 == 0 &&
                       problem.K % 4 == 0 && tiling.rows.planes == 1 && reinterpret_cast<std::uintptr_t>(partial) % 16 == 0;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    const int row_block = place.row_block + own_row / 8 + half;
    if (row_block >= min(tiling.rows.blocks, place.row_block + tiling.rows.tile)) continue;
    const int row = row_block / tiling.rows.planes * 8 + row_of_block, row_plane = row_block % tiling.rows.planes;
    if (row >= tiling.rows.channels) continue;
    int column = place.column_block / tiling.columns.planes * 8 + 2 * (lane % 4);
    int plane = place.column_block % tiling.columns.planes;
    float* to = partial + row * row_step + column * column_step + first_k + row_plane;
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      if (i < blocks) {
#pragma unroll
        for (int shift = 0; shift < kShifts; ++shift) {
          const int k = plane + tiling.q * shift;
          if (first_k + row_plane + k >= problem.K || place.shift + shift < place.own_shift || (by_four && i % 4 != 0))
            continue;
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (by_four) {
              if (column + c >= tiling.columns.channels) continue;
              float four[4];
#pragma unroll
              for (int j = 0; j < 4; ++j) {
                const int at = 4 * ((i + j) % (kN / 8)) + c;
                four[j] = (half == 0 ? total[shift][at] : total[shift][at + 2]) * scale * scale_again;
              }
              *reinterpret_cast<float4*>(to + c * column_step + k) = make_float4(four[0], four[1], four[2], four[3]);
              continue;
            }
            const float sum = half == 0 ? total[shift][4 * i + c] : total[shift][4 * i + 2 + c];
            if (column + c < tiling.columns.channels) to[c * column_step + k] = sum * scale * scale_again;
          }
        }
      }
      if (++plane == tiling.columns.planes) {
        plane = 0;
        column += 8;
        to += 8 * column_step;
      }
    }
  }
}

/// All steps of a consumer warpgroup.
template <class Operand, int kN, int kShifts>
__device__ __forceinline__ void consume(const ConvProblem& problem, const WgradTiling& tiling, const WgradMemory& memory,
                                        int exponent, float* __restrict__ partial) {
  const int group = __shfl_sync(0xffffffffU, (static_cast<int>(threadIdx.x) - kWgradProducers) / 128, 0);
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const bool turns = tiling.own == 0;
  const auto rows_pitch = static_cast<std::uint32_t>(tiling.rows.pitch * 16);
  const auto rows_bytes = static_cast<std::uint32_t>(tiling.rows_bytes);
  const std::uint32_t turn = turns ? static_cast<std::uint32_t>(group * kChunk * 16) : 0;
  WgradOperands at{};
  at.rows_part = rows_bytes;
  at.columns_part = (tiling.stage_bytes / Operand::kParts - tiling.rows_bytes) / 16;
  at.shift_step = tiling.shift_step;
  const std::uint32_t own_rows = memory.base + turn + static_cast<std::uint32_t>(group * tiling.own) * rows_pitch +
                                 fragment_offset(warp, lane, rows_pitch);
  const std::uint64_t own_columns =
      ptx::transposed_descriptor(memory.base + turn + static_cast<std::uint32_t>(Operand::kParts) * rows_bytes +
                                     static_cast<std::uint32_t>(tiling.first_shift_offset * 16),
                                 static_cast<std::uint32_t>(tiling.columns.pitch * 16));
  Ring ring;
  auto left = static_cast<int>(memory.block.place.last_chunk - memory.block.place.first_chunk);
  const int flushes = Operand::kParts == 2 ? 1 : static_cast<int>(tiling.flushes);
  for (int flush = 0; flush < flushes; ++flush) {
    float total[kShifts][kN / 2] = {};
    const int last = Operand::kParts == 2 ? 0 : max(0, left - static_cast<int>(tiling.chunks_per_flush));
    for (bool go_on = false; left > last; --left, go_on = true) {
      const auto stage = static_cast<std::uint32_t>(ring.stage * tiling.stage_bytes);
      at.rows = own_rows + stage;
      at.columns = own_columns + (stage >> 4);
      ptx::mbarrier_wait(memory.full(ring.stage), ring.parity);
      ptx::fence_async_shared();
      const auto release = [&] { ptx::mbarrier_arrive(memory.empty(ring.stage)); };
      if constexpr (Operand::kParts == 2)
        multiply_split<Operand, kN, kShifts>(at, release, total);
      else
        multiply_once<Operand, kN, kShifts>(at, go_on, release, total);
      ring.advance(tiling.stages);
    }
    const WgradPlace& place = memory.block.place;
    const int slice = place.slice * flushes + flush;
    store_partial<kN, kShifts>(problem, tiling, place, turns ? 2 * slice + group : slice, (turns ? 0 : group * 64) + warp * 16,
                               lane / 4, lane, power_of_two(exponent / 2), power_of_two(exponent - exponent / 2), partial,
                               total);
  }
}

// static in wgrad_kernel: kStaticBytes of tiling.cpp
static_assert(sizeof(WgradBlock) <= 384);

template <class Operand, int kN, int kShifts>
__global__ void __launch_bounds__(kWgradThreads, 1)
    wgrad_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ WgradTiling tiling,
                 const typename Operand::Source* __restrict__ x, const typename Operand::Source* __restrict__ y,
                 float* __restrict__ partial, WgradScales* scales) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char raw[];
  __shared__ WgradBlock block;
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  const WgradMemory memory{base, raw + (base - ptx::shared_address(raw)), block};
  auto* items = reinterpret_cast<WgradItem*>(memory.stages + tiling.stages * tiling.stage_bytes);
  if (threadIdx.x == 0) {
    const WgradPlace place = wgrad_place(blockIdx.x, tiling);
    block.place = place;
    block.rows = origin_of(tiling.rows, tiling.swapped ? y : x, problem.G, place.group, place.shift, tiling.chunk);
    block.columns = origin_of(tiling.columns, tiling.swapped ? x : y, problem.G, place.group, place.shift, tiling.chunk);
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(memory.full(stage), kWgradProducers);  // each writer and reader arrives for itself
      ptx::mbarrier_init(memory.empty(stage), 256);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const WgradPlace& place = block.place;
  const int listed = (tiling.rows.items + tiling.columns.items + kWgradProducers - 1) / kWgradProducers * kWgradProducers;
  for (int item = static_cast<int>(threadIdx.x); item < listed; item += kWgradThreads) {
    const int column = item - tiling.rows.items;
    items[item] =
        column < 0 ? make_item(tiling.rows, place.row_block, item) : make_item(tiling.columns, place.column_block, column);
  }
  __syncthreads();
  const int x_exponent = Operand::kScaled ? scale_exponent(largest_of(scales->x_largest), kSourceTarget) : 0;
  const int y_exponent = Operand::kScaled ? scale_exponent(largest_of(scales->y_largest), kSourceTarget) : 0;
  if (threadIdx.x < kWgradProducers) {
    ptx::registers_down<48>();
    const std::int64_t n = place.first_chunk / tiling.chunks_per_row;
    const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
    const auto slots_of = [&](int items) { return (items / 32 + kWgradWarps - 1 - warp) / kWgradWarps; };
    const auto chunks = static_cast<int>(place.last_chunk - place.first_chunk);
    WgradProducer<Operand> producer{tiling,
                                    block,
                                    memory,
                                    items + threadIdx.x,
                                    reinterpret_cast<std::uint32_t*>(items + listed) + threadIdx.x,
                                    slots_of(tiling.rows.items),
                                    max(1, slots_of(tiling.rows.items + tiling.columns.items)),
                                    power_of_two(tiling.swapped ? y_exponent : x_exponent),
                                    power_of_two(tiling.swapped ? x_exponent : y_exponent),
                                    static_cast<int>(n),
                                    static_cast<int>(place.first_chunk - n * tiling.chunks_per_row),
                                    {0, chunks},
                                    {0, chunks},
                                    {},
                                    {},
                                    {__float2half2_rn(0.0F), 0},
                                    0};
    produce<Operand>(producer);
    if constexpr (Operand::kScaled) report(producer.range, tiling, scales);
  } else {
    ptx::registers_up<168>();
    consume<Operand, kN, kShifts>(problem, tiling, memory, -x_exponent - y_exponent, partial);
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
