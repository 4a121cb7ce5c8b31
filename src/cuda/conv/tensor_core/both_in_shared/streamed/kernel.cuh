#pragma once
// Forward and dgrad on wgmma (sm_90a); the mathematics are in cuda/conv/tap_gemm.hpp.
//
// gemm_m = columns (channel, class), gemm_n = positions, gemm_k = (row, plane, tap). One warpgroup of a block, the producer,
// reads the source with plain loads, whatever its alignment, and writes it as vectors of 16 bytes of neighbouring rows,
// [row/8][position][8]: each element is converted once and serves every tap, since a tap, a plane or a dilation is then only
// another start address of the operand. Packed weights come by bulk copies, once per block where they fit. Two warpgroups, the
// consumers, do nothing but wgmma on both and write their 64 columns out through shared memory.

#include <cstdint>

#include "cuda/conv/cursor.cuh"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/both_in_shared/streamed/store.cuh"
#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/operand/convert_tile.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/ptx/index.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kConsumers = 256;
inline constexpr int kThreads = kProducers + kConsumers;

/// Where a block works.
struct Place {
  std::int64_t n, g, column, position, weight_tile;
};

template <int kColumns, int kPositions>
__device__ __forceinline__ Place place_of(std::int64_t block, const TapGemm& gemm, const Tiling& tiling) {
  Place place;
  std::uint32_t tile;
  if (tiling.blocks <= 0x7fffffff) {
    const auto index = static_cast<std::uint32_t>(block);
    const std::uint32_t above = tiling.by_weight_tiles.divide(index);
    tile = index - above * tiling.by_weight_tiles.divisor;
    const std::uint32_t n = tiling.by_position_tiles.divide(above);
    place.position = static_cast<std::int64_t>(above - n * tiling.by_position_tiles.divisor) * kPositions;
    place.n = n;
  } else {
    tile = static_cast<std::uint32_t>(block % tiling.weight_tiles);
    block /= tiling.weight_tiles;
    place.position = block % tiling.position_tiles * kPositions;
    place.n = block / tiling.position_tiles;
  }
  place.position += gemm.position_begin;
  const std::uint32_t g = tiling.by_column_tiles.divide(tile);
  place.g = g;
  place.column = static_cast<std::int64_t>(tile - g * tiling.by_column_tiles.divisor) * kColumns;
  place.weight_tile = tile;
  return place;
}

/// Shared memory: sources, weights, staging, barriers. Addresses as PTX wants them.
struct Layout {
  std::uint32_t sources, weights, staging, barriers;
  __device__ Layout(std::uint32_t base, const Tiling& tiling) {
    sources = base;
    weights = sources + static_cast<std::uint32_t>(tiling.stages * tiling.source_bytes);
    staging = weights + static_cast<std::uint32_t>(tiling.weight_buffers * tiling.weight_bytes);
    barriers = staging + kStagingBytes;
  }
  __device__ std::uint32_t full(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16; }
  __device__ std::uint32_t empty(int stage) const { return barriers + static_cast<std::uint32_t>(stage) * 16 + 8; }
  __device__ std::uint32_t weights_full() const { return barriers + 256; }
  /// Four words: the faults that each producing warp has found in the tile that ends in the stage.
  __device__ std::uint32_t suspect_count(int stage) const { return barriers + 272 + static_cast<std::uint32_t>(stage) * 16; }
  /// What each of the consumers' warps has to compute again.
  __device__ std::uint32_t suspect_tiles() const { return barriers + 512; }
};
static_assert(512 + kConsumers / 32 * SuspectTiles::kMost * sizeof(SuspectTiles::Entry) <= kBarrierBytes);

template <class T>
__device__ __forceinline__ Fetch<T> fetch_of(const TapGemm& gemm, const Tiling& tiling, const Place& place,
                                             const Cursor& cursor, const T* __restrict__ global) {
  const std::int64_t row0 = static_cast<std::int64_t>(cursor.row) * tiling.rows;
  const int plane0 = cursor.plane * tiling.planes;
  const std::int64_t u0 = place.position + static_cast<std::int64_t>(cursor.tap) * tiling.taps * gemm.tap_step;
  const std::int64_t e0 = gemm.source_stride * u0 + plane0 * gemm.source_plane_step + gemm.source_origin;
  const T* base = global + ((place.n * gemm.G + place.g) * gemm.rows + row0) * gemm.source_length + e0;
  return make_fetch(tiling.tile, base, e0, gemm.source_length, gemm.rows - row0, gemm.planes - plane0);
}

template <class Operand, int kColumns, int kPositions>
__device__ void produce(const TapGemm& gemm, const Tiling& tiling, const Layout& layout, unsigned char* memory,
                        std::uint32_t base, const typename Operand::Source* __restrict__ source,
                        const unsigned char* __restrict__ packed, const OperandHeader* header) {
  using T = typename Operand::Source;
  using Maker = TileMaker<Operand>;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t tile_bytes = static_cast<std::int64_t>(tiling.count) * tiling.weight_bytes;
  if (tiling.stationary && thread == 0) {
    const Place place = place_of<kColumns, kPositions>(blockIdx.x, gemm, tiling);
    const unsigned char* from = packed + place.weight_tile * tile_bytes;
    const auto total = static_cast<std::uint32_t>(tile_bytes);
    ptx::mbarrier_arrive_expect(layout.weights_full(), total);
    for (std::uint32_t at = 0; at < total; at += 16384)
      ptx::bulk_copy(layout.weights + at, from + at, min(16384U, total - at), layout.weights_full());
  }
  if constexpr (Operand::kSplit) wait_for_grid_before();
  const int exponent = Operand::kSplit ? source_exponent(header) : 0;
  const Maker maker{tiling.tile, SplitRange(exponent), power_of_two(exponent)};
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < tiling.blocks; block += gridDim.x) {
    const Place place = place_of<kColumns, kPositions>(block, gemm, tiling);
    const unsigned char* weights = packed + place.weight_tile * tile_bytes;
    SuspectCount suspect_count = 0;
    Cursor cursor;
    for (int step = 0; step < tiling.count; ++step, cursor.advance(tiling)) {
      const Fetch<T> fetch = fetch_of<T>(gemm, tiling, place, cursor, source);
      unsigned char* stage = memory + (layout.sources - base) + ring.stage * tiling.source_bytes;
      constexpr int kAdvance = Maker::kBatch * kProducers;
      T even[Maker::kBatch][Maker::kVector], odd[Maker::kBatch][Maker::kVector];
      maker.load(fetch, thread, even);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      if (thread == 0 && !tiling.stationary) {
        const auto bytes = static_cast<std::uint32_t>(tiling.weight_bytes);
        const std::uint32_t to = layout.weights + static_cast<std::uint32_t>(ring.stage) * bytes;
        ptx::mbarrier_arrive_expect(layout.full(ring.stage), bytes);
        for (std::uint32_t at = 0; at < bytes; at += 16384)
          ptx::bulk_copy(to + at, weights + static_cast<std::int64_t>(step) * bytes + at, min(16384U, bytes - at),
                         layout.full(ring.stage));
      }
      for (int item = thread; item < tiling.tile.items; item += 2 * kAdvance) {
        maker.load(fetch, item + kAdvance, odd);
        suspect_count = joined(suspect_count, maker.store(stage, item, even));
        maker.load(fetch, item + 2 * kAdvance, even);
        suspect_count = joined(suspect_count, maker.store(stage, item + kAdvance, odd));
      }
      if (Operand::kSplit && step == tiling.count - 1) {
        const SuspectCount all = __reduce_add_sync(0xffffffffU, suspect_count);
        if (thread % 32 == 0)
          reinterpret_cast<SuspectCount*>(memory + (layout.suspect_count(ring.stage) - base))[thread / 32] = all;
      }
      ptx::fence_async_shared();
      ptx::mbarrier_arrive(layout.full(ring.stage));
      ring.advance(tiling.stages);
    }
  }
}

/// The products of one step: sums += high*high (all there is of one part), cross += high*low + low*high.
template <class Operand, int kN, int kColumns, int kCross>
__device__ __forceinline__ void multiply(const Tiling& tiling, int taps, int planes, int tap_step, std::uint32_t source,
                                         std::uint32_t weights, bool fresh, float (&sums)[kN / 2], float (&cross)[kCross]) {
  using Mma = ptx::Wgmma<Operand::kType, kN>;
  constexpr int kBlocks = Operand::kDepth / Operand::kVector;  // of a wgmma
  const int blocks = tiling.rows / Operand::kVector;
  const auto source_pitch = static_cast<std::uint32_t>(tiling.tile.window) * 16;
  const auto source_part = static_cast<std::uint32_t>(tiling.tile.items) * 16;
  const std::uint32_t weight_block = kColumns * 16;
  // weights: [tap][plane][part][block][column]
  const std::uint32_t weight_part = static_cast<std::uint32_t>(blocks) * weight_block;
#pragma unroll 1
  for (int tap = 0; tap < taps; ++tap) {
#pragma unroll 1
    for (int plane = 0; plane < planes; ++plane) {
      const std::uint32_t a0 =
          weights + static_cast<std::uint32_t>(tap * tiling.planes + plane) * Operand::kParts * weight_part;
      const std::uint32_t b0 =
          source + static_cast<std::uint32_t>(plane * blocks) * source_pitch + static_cast<std::uint32_t>(tap * tap_step) * 16;
#pragma unroll 1
      for (int block = 0; block < blocks; block += kBlocks) {
        const std::uint64_t a = ptx::operand_descriptor(a0 + static_cast<std::uint32_t>(block) * weight_block, weight_block);
        const std::uint64_t b = ptx::operand_descriptor(b0 + static_cast<std::uint32_t>(block) * source_pitch, source_pitch);
        // A group for itself, in which the compiler sees all that its registers have to do with.
        ptx::wgmma_fence();
        if constexpr (Operand::kSplit) {
          const std::uint64_t a_low = a + (weight_part >> 4), b_low = b + (source_part >> 4);
          Mma::multiply(cross, a_low, b, true);
          Mma::multiply(cross, a, b_low, true);
        }
        Mma::multiply(sums, a, b, !fresh);
        ptx::wgmma_commit();
        fresh = false;
      }
    }
  }
}

/// Computes again what may be wrong in a warp's tiles, which are all stored: 16 columns, kOwn positions from those of the block
/// on. A tile's number is the turn in which its block had it. Sums became outputs, less their bias, by 2^exponent and the
/// epilogue, which tells them. Not inlined: it has registers of its own.
template <class Operand, int kColumns, int kPositions, int kOwn>
__device__ __noinline__ void recompute_tiles_of_block(const TapGemm& gemm, const Tiling& tiling, const ExactSource& exact,
                                                      const Epilogue& epilogue, const float* bias, float* out,
                                                      SuspectTiles suspect_tiles, int exponent, int own_column,
                                                      int own_position) {
  __syncwarp();
  for (int i = 0; i < suspect_tiles.count; ++i) {
    const SuspectTiles::Entry entry = suspect_tiles.of[i];
    const bool everything = entry.suspect_count >= kNeverSplit;
    const float least = ldexpf(least_right<Operand>(entry.suspect_count), exponent);
    std::int64_t block = blockIdx.x + static_cast<std::int64_t>(entry.above) * gridDim.x;
    do {
      const Place place = place_of<kColumns, kPositions>(block, gemm, tiling);
      const std::int64_t first = place.column + own_column, end = min(first + 16, gemm.columns);
      const std::int64_t position = place.position + own_position;
#pragma unroll 1
      for (std::int64_t column = first; column < end; ++column) {
        const std::int64_t channel = column / gemm.classes, row = place.g * gemm.out_channels + channel;
        const std::int64_t t0 =
            gemm.out_stride * position + (column - channel * gemm.classes) * gemm.out_class_step + gemm.out_origin;
        float* const to = out + (place.n * gemm.G * gemm.out_channels + row) * gemm.out_length;
        const float offset = bias != nullptr ? bias[row] : 0.0F;
        float result[kOwn / 32];
        const auto t_of = [&](int i) { return t0 + gemm.out_stride * (i * 32 + static_cast<int>(threadIdx.x) % 32); };
#pragma unroll
        for (int i = 0; i < kOwn / 32; ++i) {
          const std::int64_t t = t_of(i);
          result[i] = t >= 0 && t < gemm.out_length ? to[t] : 0.0F;
        }
#pragma unroll 1
        for (int i = 0; i < kOwn / 32; ++i) {
          const std::int64_t t = t_of(i);
          const float value = i == 0 ? result[0] : i == 1 ? result[1] : i == 2 ? result[2] : result[3];
          if (t < 0 || t >= gemm.out_length || !(everything || !(fabsf(epilogue.undo(value) - offset) >= least))) continue;
          const std::int64_t at = position + i * 32 + static_cast<int>(threadIdx.x) % 32;
          to[t] = epilogue.apply(own_exact_sum(gemm, exact, place.n, place.g, column, at) + offset);
        }
      }
      block += gridDim.x;
    } while (i == SuspectTiles::kMost - 1 && block < tiling.blocks);
  }
}

template <class Operand, int kColumns, int kPositions>
__global__ void __launch_bounds__(kThreads, 1)
    gather_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Tiling tiling,
                  const __grid_constant__ Epilogue epilogue, const typename Operand::Source* __restrict__ source,
                  const unsigned char* __restrict__ packed, const typename Operand::Source* __restrict__ bias,
                  typename Operand::Source* __restrict__ out, const OperandHeader* header,
                  const __grid_constant__ ExactSource exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  unsigned char* memory = raw + (base - ptx::shared_address(raw));
  const Layout layout(base, tiling);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), kProducers + (tiling.stationary ? 0 : 1));
      ptx::mbarrier_init(layout.empty(stage), kConsumers / 32);
    }
    ptx::mbarrier_init(layout.weights_full(), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < kProducers) {
    ptx::registers_down<88>();
    produce<Operand, kColumns, kPositions>(gemm, tiling, layout, memory, base, source, packed + kWeightHeaderBytes, header);
    return;
  }
  ptx::registers_up<208>();
  constexpr int kN = Operand::kN;
  constexpr bool kAlongPositions = kColumns == 64;
  static_assert(kPositions == (kAlongPositions ? 2 * kN : kN) && (kColumns == 64 || kColumns == 128));
  const int group = (static_cast<int>(threadIdx.x) - kProducers) / 128, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_column = kAlongPositions ? 0 : group * 64, own_position = kAlongPositions ? group * kN : 0;
  // Of all consumers, asked for when it is needed: the products take the registers.
  const auto own_warp = [] { return (static_cast<int>(ptx::thread_index()) - kProducers) / 32; };
  const auto* state = reinterpret_cast<const State*>(packed);
  if constexpr (Operand::kSplit) wait_for_grid_before();
  const int exponent = Operand::kSplit ? -source_exponent(header) - scale_exponent(state->weight_largest, kWeightTarget) : 0;
  const SuspectCount of_weights =
      Operand::kSplit ? weight_suspect_count(static_cast<Split>(state->weight_split), gemm.rows * gemm.planes * gemm.taps) : 0;
  const auto suspect_tiles_of = [&](int warp) {
    return reinterpret_cast<SuspectTiles::Entry*>(memory + (layout.suspect_tiles() - base)) + warp * SuspectTiles::kMost;
  };
  int suspect_tile_count = 0;
  if (tiling.stationary) ptx::mbarrier_wait(layout.weights_full(), 0);
  Ring ring;
  for (std::uint32_t turn = 0;; ++turn) {
    const std::int64_t block = blockIdx.x + static_cast<std::int64_t>(turn) * gridDim.x;
    if (block >= tiling.blocks) break;
    SuspectCount suspect_count = 0;
    float sums[kN / 2] = {};
    float cross[Operand::kSplit ? kN / 2 : 1] = {}, total[Operand::kSplit ? kN / 2 : 1] = {};
    Cursor cursor;
    for (int step = 0; step < tiling.count; ++step, cursor.advance(tiling)) {
      const int taps = min(tiling.taps, static_cast<int>(gemm.taps) - cursor.tap * tiling.taps);
      const int planes = min(tiling.planes, static_cast<int>(gemm.planes) - cursor.plane * tiling.planes);
      const std::uint32_t x = layout.sources + static_cast<std::uint32_t>(ring.stage * tiling.source_bytes + own_position * 16);
      const std::uint32_t w =
          layout.weights +
          static_cast<std::uint32_t>((tiling.stationary ? step : ring.stage) * tiling.weight_bytes + own_column * 16);
      ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
      if constexpr (Operand::kSplit) ptx::fence_registers(sums), ptx::fence_registers(cross);
      multiply<Operand, kN, kColumns>(tiling, taps, planes, static_cast<int>(gemm.tap_step), x, w, Operand::kSplit || step == 0,
                                      sums, cross);
      ptx::wgmma_wait<0>();
      if (Operand::kSplit && step == tiling.count - 1)
        suspect_count = suspect_count_of_tile(memory + (layout.suspect_count(ring.stage) - base), of_weights, lane);
      if (lane == 0) ptx::mbarrier_arrive(layout.empty(ring.stage));
      ring.advance(tiling.stages);
      if constexpr (Operand::kSplit) {
        // The tensor cores cut sums off instead of rounding them: each step's are added up in ordinary arithmetic.
        ptx::fence_registers(sums);
        ptx::fence_registers(cross);
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) total[i] += sums[i];
      }
    }
    ptx::fence_registers(sums);
    if constexpr (Operand::kSplit) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) sums[i] = total[i] + cross[i] * (1.0F / kLowScale);
    }
    Place own = place_of<kColumns, kPositions>(block, gemm, tiling);  // not before: the products need the registers
    const int warp = own_warp();
    own.column += own_column + warp % 4 * 16;
    own.position += own_position;
    if constexpr (Operand::kSplit) {
      if (suspect_count != 0 && (has_sum_below(least_right<Operand>(suspect_count), gemm.columns - own.column, sums) ||
                                 suspect_count >= kNeverSplit)) {
        SuspectTiles suspect_tiles{suspect_tiles_of(warp), suspect_tile_count};
        suspect_tiles.add(turn, suspect_count);
        suspect_tile_count = suspect_tiles.count;
      }
    }
    float* const staging = reinterpret_cast<float*>(memory + (layout.staging - base)) + warp * 16 * kStagingPitch;
    store_tile<typename Operand::Source, kN>(gemm, tiling, own, bias, epilogue, exponent, staging, lane, out, sums);
  }
  if constexpr (Operand::kSplit) {
    if (suspect_tile_count != 0)
      recompute_tiles_of_block<Operand, kColumns, kPositions, kN>(gemm, tiling, exact, epilogue, bias, out,
                                                                  {suspect_tiles_of(own_warp()), suspect_tile_count}, exponent,
                                                                  own_column + own_warp() % 4 * 16, own_position);
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
