#pragma once
// Forward and dgrad on wgmma (sm_90a) for problems in which many column tiles read the same source. The mathematics are in
// cuda/conv/tap_gemm.hpp.
//
// gemm_m = columns (channel, class), gemm_n = positions of all samples, concatenated, gemm_k = (row, plane, tap). Both operands
// are prepared in global memory (operand/convert_tensor.cuh, pack_weights.cuh), so the producer of a block is one warp that
// issues bulk copies. Two warpgroups multiply from shared memory. They release a stage after the products of the next one are
// issued, so the tensor cores never wait for them.

#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/recompute.cuh"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/multiply.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/store.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// One thread copies the tiles of a block.
template <bool kAlongPositions>
__device__ __forceinline__ void preconverted_produce(const PreconvertedTiling& tiling, const PreconvertedLayout& layout,
                                                     const unsigned char* __restrict__ source,
                                                     const unsigned char* __restrict__ packed) {
  const SourceLayout& gemm = tiling.source;
  const std::int64_t tile_bytes = gemm.row_steps * gemm.planes * gemm.parts * kPreconvertedBlocks * gemm.tile_places * 16;
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < tiling.blocks; block += gridDim.x) {
    const PreconvertedTile tile = preconverted_tile(block, tiling);
    const std::int64_t first_step = (tile.g * tiling.column_tiles + tile.column_tile) * tiling.count +
                                    static_cast<std::int64_t>(tile.first_row_step) * tiling.plane_steps * tiling.tap_steps;
    Cursor cursor;
    cursor.row = tile.first_row_step;
    copy_tile<kAlongPositions>(
        tiling, layout,
        source + (tile.g * gemm.tiles + tile.position * (kAlongPositions ? kPreconvertedGroups : 1)) * tile_bytes, tile_bytes,
        packed + first_step * tiling.weight_bytes, cursor, tile.count, ring);
  }
}

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
  const SampleLook<Operand::kScaled> look(source_header);
  if (look.is_mixed()) return;
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
      ScaledFinish(sum_exponent(look, weight_header), epilogue),
      bias,
      out,
      memory + (layout.staging - base) + group * kStaging,
      static_cast<int>(threadIdx.x) % 128,
      1 + group};
  const SuspectFinder<typename Operand::Source> finder{gemm, tiling, exact, weight_header->suspect_count};
  constexpr int kTileColumns = kAlongPositions ? kPreconvertedSubtile : kPreconvertedSubtile * kPreconvertedGroups;
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < tiling.blocks; block += gridDim.x) {
    const PreconvertedTile tile = preconverted_tile(block, tiling);
    // Loaded here; needed after the products.
    const std::uint32_t any_suspect_number = finder.look(preconverted_place<kN, kAlongPositions>(tile, tiling, group), kN);
    float sums[kN / 2] = {};
    float cross[Operand::kSplit ? kN / 2 : 1] = {}, total[Operand::kSplit ? kN / 2 : 1] = {};
    const int last = multiply_tile<Operand, kTileColumns>(
        gemm, tiling, layout, own_column, own_source, tile.count, ring, sums, cross, total, [&](int step) {
          // The aux operand is loaded during the products, once the previous tile has left the staging buffer.
          if constexpr (decltype(store)::kFinishesWithAux) {
            if (epilogue.has_aux() && step == tile.count / 2) {
              const int same = __shfl_sync(0xffffffffU, static_cast<int>(block), 0);
              store.bring(preconverted_place<kN, kAlongPositions>(preconverted_tile(same, tiling), tiling, group), 0);
            }
          }
        });
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
  const SampleLook<Operand::kScaled> look(source_header);
  if (look.is_mixed()) return;
  __shared__ __align__(
      16) unsigned char staging[kPreconvertedGroups][4 * preconverted_staging_of_warp(kPreconvertedStagedBytes / 2)];
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  const PreconvertedStore<typename Operand::Source, kN, kPreconvertedStagedBytes / 2, false> store{
      gemm, tiling, ScaledFinish(sum_exponent(look, weight_header), epilogue), bias, out, staging[group], thread, 1 + group};
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
