#pragma once
// Forward and dgrad on mma.sync (sm_80 and later). The operands are those of the preconverted wgmma kernel
// (operand/convert_tensor.cuh, both_in_shared/preconverted/pack_weights.cuh), copied by cp.async into a ring of stages.
//
// gemm_m = columns (channel, class), gemm_n = positions of all samples, concatenated, gemm_k = (row, plane, tap). A warp
// computes 64 columns x 64 positions (split: 32). ldmatrix reads an operand [block of 8 rows][column or position][8 rows]
// without bank conflicts. Several blocks on a multiprocessor hide each other's stores.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/cursor.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/recompute.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/store.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/tiling.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/mma_fragments.cuh"
#include "cuda/conv/tensor_core/pipeline/preconverted/place.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace polyphase::cuda::tensor_core {

template <class Operand>
inline constexpr int kMmaPositions = mma_positions_of_warp(Operand::kParts);
/// Copies a block's steps of operands to the stages. Weights and source are contiguous bytes each; the source may be two
/// pieces.
template <int kThreads, bool kHalves>
struct MmaCopies {
  const PreconvertedTiling& tiling;
  const unsigned char* source;   // of the tile
  const unsigned char* weights;  // of the next step
  int plane_bytes;
  std::int64_t row_step_bytes, tile_bytes;  // of the source
  Cursor cursor;

  __device__ __forceinline__ MmaCopies(const PreconvertedTiling& steps_, const PreconvertedTile& tile,
                                       const unsigned char* source_, const unsigned char* packed)
      : tiling(steps_) {
    const SourceLayout& from = tiling.source;
    plane_bytes = from.parts * kPreconvertedBlocks * from.tile_places * 16;
    row_step_bytes = from.planes * plane_bytes;
    tile_bytes = from.row_steps * row_step_bytes;
    const std::int64_t first_step = (tile.g * tiling.column_tiles + tile.column_tile) * tiling.count +
                                    static_cast<std::int64_t>(tile.first_row_step) * tiling.plane_steps * tiling.tap_steps;
    source = source_ + (tile.g * from.tiles + tile.position * (kHalves ? 2 : 1)) * tile_bytes;
    weights = packed + first_step * tiling.weight_bytes;
    cursor.row = tile.first_row_step;
  }

  __device__ __forceinline__ static void copy(std::uint32_t to, const unsigned char* from, int bytes) {
    constexpr int kRound = kThreads * 16, kRounds = 4;
    const int thread = static_cast<int>(threadIdx.x) * 16;
    to += static_cast<std::uint32_t>(thread);
    from += thread;
#pragma unroll 1
    for (int left = bytes; left > 0; left -= kRounds * kRound, to += kRounds * kRound, from += kRounds * kRound) {
#pragma unroll
      for (int i = 0; i < kRounds; ++i)
        if (thread + i * kRound < left) ptx::copy_vector(to + i * kRound, from + i * kRound);
    }
  }

  __device__ __forceinline__ void issue(std::uint32_t to) {
    const int plane = cursor.plane * tiling.planes;
    const int bytes = min(tiling.planes, static_cast<int>(tiling.source.planes) - plane) * plane_bytes;
    const unsigned char* from = source + cursor.row * row_step_bytes + plane * static_cast<std::int64_t>(plane_bytes);
    copy(to, from, bytes);
    if constexpr (kHalves) copy(to + static_cast<std::uint32_t>(tiling.source_bytes / 2), from + tile_bytes, bytes);
    copy(to + static_cast<std::uint32_t>(tiling.source_bytes), weights, tiling.weight_bytes);
    weights += tiling.weight_bytes;
    cursor.advance(tiling);
  }
};

/// The products of one stage. `a` and `b` are the addresses of this lane's rows of the matrices.
template <class Operand, int kTileColumns>
struct MmaStage {
  static constexpr int kPositions = kMmaPositions<Operand>;
  static constexpr std::uint32_t kPart = kPreconvertedBlocks * kTileColumns * 16;
  static constexpr std::uint32_t kDepth = 2 * kTileColumns * 16;
  using Element = MmaElement<Operand>;
  using Sums = float[4][kPositions / 8][4];

  std::uint32_t a, b_of_tap, b, b_depth, b_part, b_plane, b_tap;
  int planes, missing_planes, plane = 0;

  /// Advances to the next plane or tap.
  __device__ __forceinline__ void advance() {
    a += Operand::kParts * kPart;
    b += b_plane;
    if (++plane == planes) {
      a += static_cast<std::uint32_t>(missing_planes) * Operand::kParts * kPart;
      b_of_tap += b_tap;
      b = b_of_tap;
      plane = 0;
    }
  }

  /// The mixed products come first: they are too small to be added to a large sum one by one. The tensor cores truncate sums
  /// instead of rounding them, so the sums over 32 rows are added in ordinary f32 arithmetic.
  __device__ __forceinline__ void multiply_split(int groups, Sums& total) {
#pragma unroll 1
    for (; groups > 0; --groups, advance()) {
      MmaColumns high[2], low;
      MmaPositions<kPositions> source_high[2], source_low;
      Sums sums;
#pragma unroll
      for (int depth = 0; depth < 2; ++depth) {
        const std::uint32_t a0 = a + depth * kDepth, b0 = b + depth * b_depth;
        source_high[depth].load(b0);
        low.load(a0 + kPart);
        high[depth].load(a0);
        source_low.load(b0 + b_part);
        if (depth == 0)
          mma_multiply<Element, true>(sums, low, source_high[depth]);
        else
          mma_multiply<Element>(sums, low, source_high[depth]);
        mma_multiply<Element>(sums, high[depth], source_low);
      }
#pragma unroll
      for (int i = 0; i < kPositions * 2; ++i) (&sums[0][0][0])[i] *= 1.0F / kLowScale;
#pragma unroll
      for (int depth = 0; depth < 2; ++depth) mma_multiply<Element>(sums, high[depth], source_high[depth]);
#pragma unroll
      for (int i = 0; i < kPositions * 2; ++i) (&total[0][0][0])[i] += (&sums[0][0][0])[i];
    }
  }

  /// Loads operands during the products of the previous ones.
  __device__ __forceinline__ void multiply_whole(int groups, Sums& sums) {
    MmaColumns columns[2];
    MmaPositions<kPositions> positions[2];
    columns[0].load(a);
    positions[0].load(b);
#pragma unroll 1
    for (; groups > 0; --groups) {
      columns[1].load(a + kDepth);
      positions[1].load(b + b_depth);
      mma_multiply<Element>(sums, columns[0], positions[0]);
      if (groups > 1) advance();
      columns[0].load(a);
      positions[0].load(b);
      mma_multiply<Element>(sums, columns[1], positions[1]);
    }
  }
};

template <int kColumnWarps>
__device__ __forceinline__ MmaPlace mma_place(const PreconvertedTile& tile, const PreconvertedTiling& tiling) {
  return {tile.g, tile.column_tile * kColumnWarps * tiling.usable, tile.position * tiling.tile_positions};
}

/// The sums of a tile's slice, computed by all warps of a block.
template <class Operand, int kColumnWarps, int kPositionWarps>
__device__ __forceinline__ void mma_sums(const TapGemm& gemm, const PreconvertedTiling& tiling, const PreconvertedTile& tile,
                                         const unsigned char* __restrict__ source, const unsigned char* __restrict__ packed,
                                         std::uint32_t memory, float (&sums)[4][kMmaPositions<Operand> / 8][4]) {
  using Stage = MmaStage<Operand, kColumnWarps * 64>;
  constexpr bool kHalves = kColumnWarps == 1;
  const auto stage_bytes = static_cast<std::uint32_t>(tiling.source_bytes + tiling.weight_bytes);
  MmaCopies<kColumnWarps * kPositionWarps * 32, kHalves> copies(tiling, tile, source, packed);
  for (int i = 0; i < tiling.stages - 1; ++i) {
    if (i < tile.count) copies.issue(memory + static_cast<std::uint32_t>(i) * stage_bytes);
    ptx::copy_commit();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const auto places = static_cast<std::uint32_t>(tiling.source.tile_places);
  // ldmatrix: lane 8i + r addresses row r of matrix i. In A the next matrix has the next columns, in B the next rows.
  const auto own_column = static_cast<std::uint32_t>((lane / 16 * kColumnWarps + warp % kColumnWarps) * 64 + lane % 16);
  constexpr int kOfHalf = kHalves ? kPositionWarps / 2 : kPositionWarps;
  const int own_warp = warp / kColumnWarps;
  const auto own_place = static_cast<std::uint32_t>(own_warp % kOfHalf * kMmaPositions<Operand> + lane / 16 * 8 + lane % 8);
  const std::uint32_t a = static_cast<std::uint32_t>(tiling.source_bytes) + own_column * 16;
  const std::uint32_t b = static_cast<std::uint32_t>(own_warp / kOfHalf * (tiling.source_bytes / 2)) +
                          (static_cast<std::uint32_t>(lane / 8 % 2) * places + own_place) * 16;
  const int all_taps = tiling.source.taps_apart ? 1 : static_cast<int>(gemm.taps);
  const auto tap_bytes = static_cast<std::uint32_t>(gemm.tap_step) * 16;
  Cursor cursor;
  cursor.row = tile.first_row_step;
  int at = 0, next = tiling.stages - 1;
  for (int step = 0; step < tile.count; ++step, cursor.advance(tiling)) {
    wait_for_stage(tiling.stages);
    __syncthreads();
    if (step + tiling.stages - 1 < tile.count) copies.issue(memory + static_cast<std::uint32_t>(next) * stage_bytes);
    ptx::copy_commit();
    const int first_tap = cursor.tap * tiling.taps, taps = min(tiling.taps, all_taps - first_tap);
    const int planes = min(tiling.planes, static_cast<int>(tiling.source.planes) - cursor.plane * tiling.planes);
    const std::uint32_t stage = memory + static_cast<std::uint32_t>(at) * stage_bytes;
    const std::uint32_t first = stage + b + static_cast<std::uint32_t>(first_tap) * tap_bytes;
    Stage products{stage + a,
                   first,
                   first,
                   2 * places * 16,
                   kPreconvertedBlocks * places * 16,
                   Operand::kParts * kPreconvertedBlocks * places * 16,
                   tap_bytes,
                   planes,
                   tiling.planes - planes};
    if constexpr (Operand::kSplit)
      products.multiply_split(taps * planes, sums);
    else
      products.multiply_whole(taps * planes, sums);
    at = at + 1 == tiling.stages ? 0 : at + 1;
    next = next + 1 == tiling.stages ? 0 : next + 1;
  }
  ptx::copy_wait<0>();
}

/// The place of one warp.
template <int kColumnWarps, int kPositions>
__device__ __forceinline__ PreconvertedPlace mma_place_of_warp(const PreconvertedTile& tile, const PreconvertedTiling& tiling) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return {tile.g, (tile.column_tile * kColumnWarps + warp % kColumnWarps) * tiling.usable,
          tile.position * tiling.tile_positions + warp / kColumnWarps * kPositions};
}

/// This lane's share of the flags of a warp's sums: zero in all lanes if no sum is suspect.
template <class Operand, int kColumnWarps>
__device__ __forceinline__ std::uint32_t mma_suspect_count(const TapGemm& gemm, const PreconvertedTiling& tiling,
                                                           const FlaggedSource<typename Operand::Source>& exact,
                                                           const OperandHeader* weight_header, const PreconvertedTile& tile) {
  const SuspectFinder<typename Operand::Source> finder{gemm, tiling, exact, weight_header->suspect_count};
  return finder.look(mma_place_of_warp<kColumnWarps, kMmaPositions<Operand>>(tile, tiling), kFlagPositions);
}

/// Stores a block's sums, then recomputes the suspect ones. `suspect_count`: this lane's share of the flags.
template <class Operand, int kColumnWarps, int kPositionWarps>
__device__ __forceinline__ void mma_store(const TapGemm& gemm, const PreconvertedTiling& tiling, int warps_of_pass,
                                          const Epilogue& epilogue, const FlaggedSource<typename Operand::Source>& exact,
                                          const typename Operand::Source* __restrict__ bias,
                                          typename Operand::Source* __restrict__ out, unsigned char* memory,
                                          const OperandHeader* source_header, const OperandHeader* weight_header,
                                          std::int64_t block, std::uint32_t suspect_count,
                                          float (&sums)[4][kMmaPositions<Operand> / 8][4]) {
  using T = typename Operand::Source;
  constexpr int kPositions = kMmaPositions<Operand>;
  const PreconvertedTile tile = preconverted_tile(block, tiling);
  const PreconvertedPlace own = mma_place_of_warp<kColumnWarps, kPositions>(tile, tiling);
  MmaSuspects suspects;
  if (__any_sync(0xffffffffU, suspect_count != 0) != 0)
    suspects = mma_suspects(SuspectFinder<T>{gemm, tiling, exact, weight_header->suspect_count}, own, sums);
  const MmaStore<T, kColumnWarps, kPositionWarps, kPositions> store{
      gemm,         tiling, ScaledFinish(sum_exponent<Operand>(source_header, weight_header), epilogue),
      bias,         out,    reinterpret_cast<T*>(memory),
      warps_of_pass};
  store.store(mma_place<kColumnWarps>(tile, tiling), sums);
  // An element written twice must keep the second value.
  if (__syncthreads_or(suspects.any() ? 1 : 0) != 0) mma_recompute<T>(gemm, tiling, epilogue, exact, bias, out, own, suspects);
}

template <class Operand, int kColumnWarps, int kPositionWarps, int kBlocksPerSm>
__global__ void __launch_bounds__(kColumnWarps* kPositionWarps * 32, kBlocksPerSm)
    mma_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ PreconvertedTiling tiling, int warps_of_pass,
               const __grid_constant__ Epilogue epilogue, const unsigned char* __restrict__ source,
               const unsigned char* __restrict__ packed, const typename Operand::Source* __restrict__ bias,
               typename Operand::Source* __restrict__ out, float4* __restrict__ partial,
               const OperandHeader* __restrict__ source_header, const OperandHeader* __restrict__ weight_header,
               const __grid_constant__ FlaggedSource<typename Operand::Source> exact) {
  constexpr int kPositions = kMmaPositions<Operand>, kThreads = kColumnWarps * kPositionWarps * 32;
  extern __shared__ __align__(128) unsigned char raw[];
  wait_for_grid_before();
  const PreconvertedTile tile = preconverted_tile(blockIdx.x, tiling);
  // Loaded here; needed after the products.
  const std::uint32_t suspect_count = mma_suspect_count<Operand, kColumnWarps>(gemm, tiling, exact, weight_header, tile);
  float sums[4][kPositions / 8][4] = {};
  mma_sums<Operand, kColumnWarps, kPositionWarps>(gemm, tiling, tile, source, packed, ptx::shared_address(raw), sums);
  if (tiling.slices > 1) {
    float4* to = partial + static_cast<std::int64_t>(blockIdx.x) * (kPositions / 2 * kThreads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kPositions / 2; ++i) {
      const float(&v)[4] = sums[i / (kPositions / 8)][i % (kPositions / 8)];
      to[i * kThreads] = make_float4(v[0], v[1], v[2], v[3]);
    }
    return;
  }
  mma_store<Operand, kColumnWarps, kPositionWarps>(gemm, tiling, warps_of_pass, epilogue, exact, bias, out, raw, source_header,
                                                   weight_header, blockIdx.x, suspect_count, sums);
}

/// Adds the slices of each tile in order and stores the sum.
template <class Operand, int kColumnWarps, int kPositionWarps>
__global__ void __launch_bounds__(kColumnWarps* kPositionWarps * 32, 1)
    mma_reduce_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ PreconvertedTiling tiling,
                      int warps_of_pass, const __grid_constant__ Epilogue epilogue,
                      const typename Operand::Source* __restrict__ bias, typename Operand::Source* __restrict__ out,
                      const float4* __restrict__ partial, const OperandHeader* __restrict__ source_header,
                      const OperandHeader* __restrict__ weight_header,
                      const __grid_constant__ FlaggedSource<typename Operand::Source> exact) {
  constexpr int kPositions = kMmaPositions<Operand>, kThreads = kColumnWarps * kPositionWarps * 32;
  extern __shared__ __align__(128) unsigned char raw[];
  float sums[4][kPositions / 8][4] = {};
#pragma unroll 1
  for (int slice = 0; slice < tiling.slices; ++slice) {
    const float4* from = partial + (slice * tiling.tiles + blockIdx.x) * (kPositions / 2 * kThreads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kPositions / 2; ++i) {
      float(&v)[4] = sums[i / (kPositions / 8)][i % (kPositions / 8)];
      const float4 more = from[i * kThreads];
      v[0] += more.x;
      v[1] += more.y;
      v[2] += more.z;
      v[3] += more.w;
    }
  }
  const PreconvertedTile tile = preconverted_tile(blockIdx.x, tiling);
  const std::uint32_t suspect_count = mma_suspect_count<Operand, kColumnWarps>(gemm, tiling, exact, weight_header, tile);
  mma_store<Operand, kColumnWarps, kPositionWarps>(gemm, tiling, warps_of_pass, epilogue, exact, bias, out, raw, source_header,
                                                   weight_header, blockIdx.x, suspect_count, sums);
}

}  // namespace polyphase::cuda::tensor_core
