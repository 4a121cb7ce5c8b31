#pragma once
// Forward and dgrad on wgmma (sm_90a) for problems in which many column tiles read the same source. The mathematics are in
// cuda/conv/tap_gemm.hpp.
//
// gemm_m = columns (channel, class), gemm_n = positions of all samples, concatenated, gemm_k = (row, plane, tap). Both operands
// are prepared in global memory (operand/convert_tensor.cuh, pack_weights.cuh), so the producer of a block is one warp that
// issues bulk copies. Two warpgroups multiply from shared memory. They release a stage after the products of the next one are
// issued, so the tensor cores never wait for them.

#include <cstdint>

#include "cuda/conv/cursor.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/recompute.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/store.cuh"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreconvertedConsumers = kPreconvertedGroups * 128;
/// The producer is a whole warpgroup, so that its registers can move to the consumers; only one of its threads works.
inline constexpr int kPreconvertedThreads = kPreconvertedConsumers + 128;

/// Shared memory: stages of source and weights, staging, barriers.
struct PreconvertedLayout {
  std::uint32_t stages, staging, barriers, stage_bytes;
  __device__ PreconvertedLayout(std::uint32_t base, const PreconvertedTiling& tiling, int staging_of_group) {
    stages = base;
    stage_bytes = static_cast<std::uint32_t>(tiling.source_bytes + tiling.weight_bytes);
    staging = stages + static_cast<std::uint32_t>(tiling.stages) * stage_bytes;
    barriers = staging + static_cast<std::uint32_t>(kPreconvertedGroups * staging_of_group);
  }
  __device__ std::uint32_t stage(int index) const { return stages + static_cast<std::uint32_t>(index) * stage_bytes; }
  __device__ std::uint32_t full(int index) const { return barriers + static_cast<std::uint32_t>(index) * 16; }
  __device__ std::uint32_t empty(int index) const { return barriers + static_cast<std::uint32_t>(index) * 16 + 8; }
  /// One thread.
  __device__ __forceinline__ void begin_barriers(const PreconvertedTiling& tiling) const {
    for (int index = 0; index < tiling.stages; ++index) {
      ptx::mbarrier_init(full(index), 1);
      ptx::mbarrier_init(empty(index), kPreconvertedGroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
};

/// One thread issues a step's copies: source and weights are contiguous bytes.
template <bool kAlongPositions>
__device__ __forceinline__ void preconverted_produce(const PreconvertedTiling& tiling, const PreconvertedLayout& layout,
                                                     const unsigned char* __restrict__ source,
                                                     const unsigned char* __restrict__ packed) {
  const SourceLayout& gemm = tiling.source;
  const auto plane_bytes = static_cast<std::uint32_t>(gemm.parts * kPreconvertedBlocks * gemm.tile_places * 16);
  const auto weight_bytes = static_cast<std::uint32_t>(tiling.weight_bytes);
  const std::int64_t row_step_bytes = gemm.planes * plane_bytes, tile_bytes = gemm.row_steps * row_step_bytes;
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < tiling.blocks; block += gridDim.x) {
    const PreconvertedTile tile = preconverted_tile(block, tiling);
    const std::int64_t first_step = (tile.g * tiling.column_tiles + tile.column_tile) * tiling.count +
                                    static_cast<std::int64_t>(tile.first_row_step) * tiling.plane_steps * tiling.tap_steps;
    const unsigned char* weights = packed + first_step * tiling.weight_bytes;
    const unsigned char* of_tile =
        source + (tile.g * gemm.tiles + tile.position * (kAlongPositions ? kPreconvertedGroups : 1)) * tile_bytes;
    Cursor cursor;
    cursor.row = tile.first_row_step;
    for (int step = 0; step < tile.count; ++step, cursor.advance(tiling), weights += weight_bytes) {
      const int plane = cursor.plane * tiling.planes;
      const std::uint32_t bytes =
          static_cast<std::uint32_t>(min(tiling.planes, static_cast<int>(gemm.planes) - plane)) * plane_bytes;
      const unsigned char* from = of_tile + cursor.row * row_step_bytes + plane * static_cast<std::int64_t>(plane_bytes);
      const std::uint32_t full = layout.full(ring.stage), to = layout.stage(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, (kAlongPositions ? 2 : 1) * bytes + weight_bytes);
      ptx::bulk_copy(to, from, bytes, full);
      if constexpr (kAlongPositions)
        ptx::bulk_copy(to + static_cast<std::uint32_t>(tiling.source_bytes / 2), from + tile_bytes, bytes, full);
      ptx::bulk_copy(to + static_cast<std::uint32_t>(tiling.source_bytes), weights, weight_bytes, full);
      ring.advance(tiling.stages);
    }
  }
}

/// The products of up to two (plane, tap) of a step, issued together; start addresses and strides in units of 16 bytes.
template <class Operand, int kN>
struct WideUnits {
  using Mma = ptx::Wgmma<Operand::kType, kN>;
  std::uint64_t a0, b0, a1, b1;
  std::uint32_t a_depth, b_depth, a_part, b_part;

  /// sums += high*high (sums = high*high for split operands); cross += high*low + low*high in a separate group.
  template <int kPhased4, int kCross>
  __device__ __forceinline__ void multiply(float (&sums)[kN / 2], float (&cross)[kCross]) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kPhased4 * kPreconvertedDepths; ++i) {
      const std::uint64_t a = (i < kPreconvertedDepths ? a0 : a1) + i % kPreconvertedDepths * a_depth;
      const std::uint64_t b = (i < kPreconvertedDepths ? b0 : b1) + i % kPreconvertedDepths * b_depth;
      Mma::multiply(sums, a, b, !Operand::kSplit || i > 0);
    }
    ptx::wgmma_commit();
    if constexpr (Operand::kSplit) {
#pragma unroll
      for (int i = 0; i < kPhased4 * kPreconvertedDepths; ++i) {
        const std::uint64_t a = (i < kPreconvertedDepths ? a0 : a1) + i % kPreconvertedDepths * a_depth;
        const std::uint64_t b = (i < kPreconvertedDepths ? b0 : b1) + i % kPreconvertedDepths * b_depth;
        Mma::multiply(cross, a + a_part, b, true);
        Mma::multiply(cross, a, b + b_part, true);
      }
      ptx::wgmma_commit();
    }
  }
};

template <int kN, bool kAlongPositions>
__device__ __forceinline__ PreconvertedPlace preconverted_place(const PreconvertedTile& tile, const PreconvertedTiling& tiling,
                                                                int group) {
  const std::int64_t subtile = kAlongPositions ? tile.column_tile : tile.column_tile * kPreconvertedGroups + group;
  return {tile.g, subtile * tiling.usable, tile.position * tiling.tile_positions + (kAlongPositions ? group * kN : 0)};
}

/// Stores a warpgroup's sums, then recomputes the suspect ones.
template <class Operand, class Store, int kSums>
__device__ __forceinline__ void store_and_recompute(const TapGemm& gemm, const PreconvertedTiling& tiling,
                                                    const Epilogue& epilogue,
                                                    const FlaggedSource<typename Operand::Source>& exact,
                                                    const typename Operand::Source* __restrict__ bias,
                                                    typename Operand::Source* __restrict__ out, const Store& store,
                                                    const SuspectFinder<typename Operand::Source>& finder, bool suspicious,
                                                    const PreconvertedPlace& place, float (&sums)[kSums]) {
  Suspects<kSums / 32> suspects;
  if (suspicious) finder.find(place, sums, suspects);
  store.store(place, sums);
  if (!suspicious) return;
  ptx::bulk_wait();
  ptx::named_barrier(store.barrier, 128);  // an element written twice must keep the second value
  recompute<Store>(gemm, tiling, epilogue, exact, bias, out, place, suspects);
}

/// sums = those of high halves, and the mixed ones.
template <int kSums>
__device__ __forceinline__ void join(const float (&total)[kSums], float (&cross)[kSums], float (&sums)[kSums]) {
  ptx::fence_registers(cross);
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = total[i] + cross[i] * (1.0F / kLowScale);
}

/// A thread's sums as partial sums of a slice.
template <int kSums>
__device__ __forceinline__ void store_partial(const float (&sums)[kSums], float4* to) {
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) to[i * 128] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

template <class Operand, int kN, bool kAlongPositions>
__global__ void __launch_bounds__(kPreconvertedThreads, 1)
    preconverted_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ PreconvertedTiling tiling,
                        const __grid_constant__ Epilogue epilogue, const unsigned char* __restrict__ source,
                        const unsigned char* __restrict__ packed, const typename Operand::Source* __restrict__ bias,
                        typename Operand::Source* __restrict__ out, float4* __restrict__ partial,
                        const OperandHeader* __restrict__ source_header, const OperandHeader* __restrict__ weight_header,
                        const __grid_constant__ FlaggedSource<typename Operand::Source> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  unsigned char* memory = raw + (base - ptx::shared_address(raw));
  constexpr int kStaging = 4 * preconverted_staging_of_warp(kPreconvertedStagedBytes);  // per warpgroup
  const PreconvertedLayout layout(base, tiling, kStaging);
  if (threadIdx.x == 0) layout.begin_barriers(tiling);
  __syncthreads();
  wait_for_grid_before();
  if (threadIdx.x >= kPreconvertedConsumers) {
    ptx::registers_down<40>();
    if (threadIdx.x == kPreconvertedConsumers) preconverted_produce<kAlongPositions>(tiling, layout, source, packed);
    return;
  }
  ptx::registers_up<232>();
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0), lane = static_cast<int>(threadIdx.x) % 32;
  const int own_column = kAlongPositions ? 0 : group * kPreconvertedSubtile;
  const int own_source = kAlongPositions ? group * (tiling.source_bytes / kPreconvertedGroups) : 0;
  const PreconvertedStore<typename Operand::Source, kN, kPreconvertedStagedBytes> store{
      gemm,
      tiling,
      ScaledFinish(sum_exponent<Operand>(source_header, weight_header), epilogue),
      bias,
      out,
      memory + (layout.staging - base) + group * kStaging,
      static_cast<int>(threadIdx.x) % 128,
      1 + group};
  const SuspectFinder<typename Operand::Source> finder{gemm, tiling, exact, weight_header->suspect_count};
  constexpr int kTileColumns = kAlongPositions ? kPreconvertedSubtile : kPreconvertedSubtile * kPreconvertedGroups;
  // In units of 16 bytes, like all address strides here.
  const auto places = static_cast<std::uint32_t>(tiling.source.tile_places);
  const int all_taps = tiling.source.taps_apart ? 1 : static_cast<int>(gemm.taps);
  const auto tap_step = static_cast<std::uint32_t>(gemm.tap_step);
  constexpr std::uint32_t kPart = kPreconvertedBlocks * kTileColumns;
  const std::uint32_t b_part = kPreconvertedBlocks * places, b_plane = Operand::kParts * b_part;
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < tiling.blocks; block += gridDim.x) {
    const PreconvertedTile tile = preconverted_tile(block, tiling);
    // Loaded here; needed after the products.
    const std::uint32_t any_suspect_number = finder.look(preconverted_place<kN, kAlongPositions>(tile, tiling, group), kN);
    float sums[kN / 2] = {};
    float cross[Operand::kSplit ? kN / 2 : 1] = {}, total[Operand::kSplit ? kN / 2 : 1] = {};
    Cursor cursor;
    int last = 0;
    for (int step = 0; step < tile.count; ++step, cursor.advance(tiling)) {
      const std::uint32_t stage = layout.stage(ring.stage);
      const int first_tap = cursor.tap * tiling.taps, taps = min(tiling.taps, all_taps - first_tap);
      const int planes = min(tiling.planes, static_cast<int>(tiling.source.planes) - cursor.plane * tiling.planes);
      std::uint64_t a =
          ptx::operand_descriptor(stage + static_cast<std::uint32_t>(tiling.source_bytes + own_column * 16), kTileColumns * 16);
      std::uint64_t b_of_tap = ptx::operand_descriptor(stage + static_cast<std::uint32_t>(own_source), places * 16) +
                               static_cast<std::uint32_t>(first_tap) * tap_step;
      std::uint64_t b = b_of_tap;
      ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
      int plane = 0;
      const auto next = [&] {
        a += Operand::kParts * kPart;
        b += b_plane;
        if (++plane < planes) return;
        plane = 0;
        a += static_cast<std::uint32_t>(tiling.planes - planes) * Operand::kParts * kPart;
        b_of_tap += tap_step;
        b = b_of_tap;
      };
#pragma unroll 1
      for (int left = taps * planes, all = left; left > 0; left -= 2) {
        const std::uint64_t a0 = a, b0 = b;
        next();
        const WideUnits<Operand, kN> units{a0, b0, a, b, 2 * kTileColumns, 2 * places, kPart, b_part};
        if constexpr (Operand::kSplit) ptx::fence_registers(sums);
        if (left > 1) {
          units.template multiply<2>(sums, cross);
          next();
        } else {
          units.template multiply<1>(sums, cross);
        }
        ptx::wgmma_wait<1>();  // all but the last products issued
        if (left == all && step != 0 && lane == 0) ptx::mbarrier_arrive(layout.empty(last));
        if constexpr (Operand::kSplit) {
          // The tensor cores truncate sums instead of rounding them, so short partial sums are added in ordinary f32
          // arithmetic. This overlaps the mixed products.
          ptx::fence_registers(sums);
#pragma unroll
          for (int i = 0; i < kN / 2; ++i) total[i] += sums[i];
        }
      }
      // The aux operand is loaded during the products, once the previous tile has left the staging buffer.
      if constexpr (decltype(store)::kFinishesWithAux) {
        if (epilogue.has_aux() && step == tile.count / 2) {
          const int same = __shfl_sync(0xffffffffU, static_cast<int>(block), 0);
          store.bring(preconverted_place<kN, kAlongPositions>(preconverted_tile(same, tiling), tiling, group), 0);
        }
      }
      last = ring.stage;
      ring.advance(tiling.stages);
    }
    // The tile's place is computed during the last products and again later: in registers it would compete with the sums.
    const int same = __shfl_sync(0xffffffffU, static_cast<int>(block), 0);
    const PreconvertedPlace place = preconverted_place<kN, kAlongPositions>(preconverted_tile(same, tiling), tiling, group);
    const bool suspicious = __any_sync(0xffffffffU, any_suspect_number != 0) != 0;
    ptx::wgmma_wait<0>();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(last));
    ptx::fence_registers(sums);
    if constexpr (Operand::kSplit) join(total, cross, sums);
    if (tiling.slices > 1)
      store_partial(sums, partial + (block * kPreconvertedGroups + group) * (kN / 8) * 128 + threadIdx.x % 128);
    else
      store_and_recompute<Operand>(gemm, tiling, epilogue, exact, bias, out, store, finder, suspicious, place, sums);
  }
  ptx::bulk_wait_read();
#endif
}

/// Adds the slices of each tile in order and stores the sum.
template <class Operand, int kN, bool kAlongPositions>
__global__ void __launch_bounds__(kPreconvertedConsumers)
    preconverted_reduce_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ PreconvertedTiling tiling,
                               const __grid_constant__ Epilogue epilogue, const typename Operand::Source* __restrict__ bias,
                               typename Operand::Source* __restrict__ out, const float4* __restrict__ partial,
                               const OperandHeader* __restrict__ source_header, const OperandHeader* __restrict__ weight_header,
                               const __grid_constant__ FlaggedSource<typename Operand::Source> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  wait_for_grid_before();
  __shared__ __align__(
      16) unsigned char staging[kPreconvertedGroups][4 * preconverted_staging_of_warp(kPreconvertedStagedBytes / 2)];
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  const PreconvertedStore<typename Operand::Source, kN, kPreconvertedStagedBytes / 2> store{
      gemm,   tiling,   ScaledFinish(sum_exponent<Operand>(source_header, weight_header), epilogue), bias, out, staging[group],
      thread, 1 + group};
  const std::int64_t tile = blockIdx.x;
  const SuspectFinder<typename Operand::Source> finder{gemm, tiling, exact, weight_header->suspect_count};
  const PreconvertedPlace place = preconverted_place<kN, kAlongPositions>(preconverted_tile(tile, tiling), tiling, group);
  const bool suspicious = __any_sync(0xffffffffU, finder.look(place, kN) != 0) != 0;
  float sums[kN / 2] = {};
#pragma unroll 1
  for (int slice = 0; slice < tiling.slices; ++slice) {
    const float4* from = partial + ((slice * tiling.tiles + tile) * kPreconvertedGroups + group) * (kN / 8) * 128 + thread;
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      const float4 more = from[i * 128];
      sums[4 * i] += more.x;
      sums[4 * i + 1] += more.y;
      sums[4 * i + 2] += more.z;
      sums[4 * i + 3] += more.w;
    }
  }
  store_and_recompute<Operand>(gemm, tiling, epilogue, exact, bias, out, store, finder, suspicious, place, sums);
  ptx::bulk_wait_read();
#endif
}

}  // namespace polyphase::cuda::tensor_core
