#pragma once
// The weight gradient on mma.sync (sm_80 and later): w[ci, co, k] = sum over n, i of x[n, ci, i] * y[n, co, S*i + k*D - P_l].
//
// gemm_m = rows (channels of a plane of one side), gemm_n = columns (channels of a plane of the other, shift), gemm_k =
// positions of all samples: see tiling.hpp. Both tensors are first converted to operands (operand.cuh), [block of 8
// channels][position][8 channels]. Every shift is a start address, and ldmatrix.trans reads both without bank conflicts.
// cp.async copies a step's positions into a ring of stages. A warp computes 64 rows x 64 columns (split: 32). A block sums a
// fixed slice of a piece into its own partial sums, to which the next piece adds; reduce_slices adds the slices in order.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/mma_fragments.cuh"
#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

template <class Operand>
inline constexpr int kMmaColumnsOfWarp = mma_columns_of_warp(Operand::kParts);

/// The work of a block.
struct MmaWgradPlace {
  int group, row_tile, column_tile, shift_tile;
  std::int64_t slice;
  __device__ __forceinline__ MmaWgradPlace(std::int64_t block, const MmaWgradTiling& tiling) {
    slice = block / tiling.jobs;
    auto job = static_cast<int>(block - slice * tiling.jobs);
    const auto take = [&job](int size) {
      const int above = job / size, digit = job - above * size;
      job = above;
      return digit;
    };
    column_tile = take(tiling.column_tiles);
    shift_tile = take(tiling.shift_tiles);
    row_tile = take(tiling.row_tiles);
    group = job;
  }
  [[nodiscard]] __device__ __forceinline__ int first_shift(const MmaWgradTiling& tiling) const {
    return shift_tile * tiling.shifts_of_tile;
  }
  [[nodiscard]] __device__ __forceinline__ int last_shift(const MmaWgradTiling& tiling) const {
    return min(first_shift(tiling) + tiling.shifts_of_tile, tiling.shifts) - 1;
  }
  /// The block of columns of the tile's first vector.
  [[nodiscard]] __device__ __forceinline__ int first_block(const MmaWgradTiling& tiling) const {
    return column_tile * tiling.vectors_of_tile / tiling.shifts_of_tile;
  }
};

/// Copies a block's steps to the stages: runs of positions, one for each block of 8 channels and part. A warp copies a run.
template <int kWarps>
struct MmaWgradCopies {
  const unsigned char *rows, *columns;  // this lane's first vector of this warp's first run
  std::int64_t run_step;                // of an operand, from one run of this warp to the next
  int row_runs, column_runs, step, window;

  __device__ __forceinline__ MmaWgradCopies(const MmaWgradTiling& tiling, const MmaWgradPlace& place, int parts,
                                            const unsigned char* all_rows, const unsigned char* all_columns) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t run = tiling.places * 16, position = place.slice * tiling.steps_of_slice * tiling.step;
    const int row = place.row_tile * tiling.rows.tile, column = place.first_block(tiling);
    const std::int64_t offset =
        std::int64_t{tiling.swapped ? tiling.halo - place.last_shift(tiling) * tiling.d : place.first_shift(tiling) * tiling.d};
    step = tiling.step;
    window = tiling.window;
    row_runs = min(tiling.rows.tile, tiling.rows.blocks - row) * parts;
    column_runs = min(tiling.columns.tile, tiling.columns.blocks - column) * parts;
    rows = all_rows + ((std::int64_t{place.group} * tiling.rows.blocks + row) * parts + warp) * run + (position + lane) * 16;
    columns = all_columns + ((std::int64_t{place.group} * tiling.columns.blocks + column) * parts + warp) * run +
              (position + offset + lane) * 16;
    run_step = kWarps * run;
  }

  __device__ __forceinline__ void issue(std::uint32_t to, std::uint32_t columns_to) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const auto own = static_cast<std::uint32_t>(lane * 16);
    const unsigned char* from = rows;
    for (int run = warp; run < row_runs; run += kWarps, from += run_step) {
      const std::uint32_t at = to + static_cast<std::uint32_t>(run * step * 16) + own;
      ptx::copy_vector(at, from);
      if (step > 32) ptx::copy_vector(at + 512, from + 512);
    }
    from = columns;
    for (int run = warp; run < column_runs; run += kWarps, from += run_step) {
      const std::uint32_t at = columns_to + static_cast<std::uint32_t>(run * window * 16) + own;
      for (int i = 0; lane + i < window; i += 32) ptx::copy_vector(at + static_cast<std::uint32_t>(i * 16), from + i * 16);
    }
    rows += step * 16;
    columns += step * 16;
  }
};

/// The products of one stage.
template <class Operand>
struct MmaWgradStage {
  static constexpr int kColumns = kMmaColumnsOfWarp<Operand>;
  static constexpr int kPairs = kColumns / 16;  // vectors of columns that are loaded together
  using Element = MmaElement<Operand>;
  using Sums = float[4][kColumns / 8][4];

  std::uint32_t a, a_next, a_part;  // rows of this lane: address, from 16 rows to the next, from part to part
  std::uint32_t b_part;
  std::uint32_t b[kPairs];

  __device__ __forceinline__ void load_rows(MmaColumns& to, std::uint32_t at) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::load_matrices_transposed(to.of[i], a + static_cast<std::uint32_t>(i) * a_next + at);
  }
  __device__ __forceinline__ void load_columns(MmaPositions<kColumns>& to, std::uint32_t stage, std::uint32_t at) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) ptx::load_matrices_transposed(to.of[i], b[i] + stage + at);
  }

  /// As in a convolution (MmaStage): mixed products first, and fresh sums every 32 positions.
  __device__ __forceinline__ void multiply_split(std::uint32_t stage, int positions, Sums& total) const {
#pragma unroll 1
    for (std::uint32_t at = 0; at < static_cast<std::uint32_t>(positions) * 16; at += kMmaWgradDepth * 16) {
      MmaColumns high[2], low;
      MmaPositions<kColumns> column_high[2], column_low;
      Sums sums;
#pragma unroll
      for (int depth = 0; depth < 2; ++depth) {
        const std::uint32_t k = at + static_cast<std::uint32_t>(depth) * 256;
        load_columns(column_high[depth], stage, k);
        load_rows(low, stage + k + a_part);
        load_rows(high[depth], stage + k);
        load_columns(column_low, stage, k + b_part);
        if (depth == 0)
          mma_multiply<Element, true>(sums, low, column_high[depth]);
        else
          mma_multiply<Element>(sums, low, column_high[depth]);
        mma_multiply<Element>(sums, high[depth], column_low);
      }
#pragma unroll
      for (int i = 0; i < kColumns * 2; ++i) (&sums[0][0][0])[i] *= 1.0F / kLowScale;
#pragma unroll
      for (int depth = 0; depth < 2; ++depth) mma_multiply<Element>(sums, high[depth], column_high[depth]);
#pragma unroll
      for (int i = 0; i < kColumns * 2; ++i) (&total[0][0][0])[i] += (&sums[0][0][0])[i];
    }
  }

  /// Loads operands during the products of the previous ones; the loads after the last product are not used.
  __device__ __forceinline__ void multiply_whole(std::uint32_t stage, int positions, Sums& sums) const {
    MmaColumns rows[2];
    MmaPositions<kColumns> columns[2];
    load_rows(rows[0], stage);
    load_columns(columns[0], stage, 0);
    const std::uint32_t end = static_cast<std::uint32_t>(positions) * 16;
#pragma unroll 1
    for (std::uint32_t at = 0; at < end; at += 512) {
      load_rows(rows[1], stage + at + 256);
      load_columns(columns[1], stage, at + 256);
      mma_multiply<Element>(sums, rows[0], columns[0]);
      const std::uint32_t next = at + 512 < end ? at + 512 : at;
      load_rows(rows[0], stage + next);
      load_columns(columns[0], stage, next);
      mma_multiply<Element>(sums, rows[1], columns[1]);
    }
  }
};

/// The addresses of this lane's rows and columns in the first stage.
template <class Operand, int kRowWarps>
__device__ __forceinline__ MmaWgradStage<Operand> mma_wgrad_stage(const MmaWgradTiling& tiling, const MmaWgradPlace& place,
                                                                  std::uint32_t memory) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  MmaWgradStage<Operand> stage;
  // ldmatrix: lane 8i + r addresses row r of matrix i. In A the next matrix has the next channels, in B the next positions.
  const int row_block = warp % kRowWarps * 8 + lane / 8 % 2;
  stage.a_part = static_cast<std::uint32_t>(tiling.step * 16);
  stage.a_next = 2 * Operand::kParts * stage.a_part;
  stage.a = memory + static_cast<std::uint32_t>((row_block * Operand::kParts * tiling.step + lane / 16 * 8 + lane % 8) * 16);
  stage.b_part = static_cast<std::uint32_t>(tiling.window * 16);
  const int first = place.first_shift(tiling), last = place.last_shift(tiling), block = place.first_block(tiling);
#pragma unroll
  for (int i = 0; i < MmaWgradStage<Operand>::kPairs; ++i) {
    const int vector =
        place.column_tile * tiling.vectors_of_tile + warp / kRowWarps * (kMmaColumnsOfWarp<Operand> / 8) + 2 * i + lane / 16;
    // Places without a vector or shift read some other one; their sums are not stored.
    const int own_block = vector / tiling.shifts_of_tile, shift = min(first + vector % tiling.shifts_of_tile, last);
    const int staged = vector < tiling.vectors ? own_block - block : 0;
    const int offset = (tiling.swapped ? last - shift : shift - first) * tiling.d;
    stage.b[i] =
        memory + static_cast<std::uint32_t>(tiling.row_bytes) +
        static_cast<std::uint32_t>((staged * Operand::kParts * tiling.window + offset + lane / 8 % 2 * 8 + lane % 8) * 16);
  }
  return stage;
}

/// Computes the sums of a block's slice.
template <class Operand, int kRowWarps, int kColumnWarps>
__device__ __forceinline__ void mma_wgrad_sums(const MmaWgradTiling& tiling, const MmaWgradPlace& place,
                                               const unsigned char* __restrict__ rows,
                                               const unsigned char* __restrict__ columns, std::uint32_t memory,
                                               float (&sums)[4][kMmaColumnsOfWarp<Operand> / 8][4]) {
  const std::int64_t first = place.slice * tiling.steps_of_slice;
  const auto count = static_cast<int>(min(tiling.steps_of_slice, tiling.steps - first));
  const auto stage_bytes = static_cast<std::uint32_t>(tiling.stage_bytes);
  const auto row_bytes = static_cast<std::uint32_t>(tiling.row_bytes);
  MmaWgradCopies<kRowWarps * kColumnWarps> copies(tiling, place, Operand::kParts, rows, columns);
  for (int i = 0; i < tiling.stages - 1; ++i) {
    const std::uint32_t to = memory + static_cast<std::uint32_t>(i) * stage_bytes;
    if (i < count) copies.issue(to, to + row_bytes);
    ptx::copy_commit();
  }
  const MmaWgradStage<Operand> products = mma_wgrad_stage<Operand, kRowWarps>(tiling, place, memory);
  std::uint32_t at = 0, next = static_cast<std::uint32_t>(tiling.stages - 1) * stage_bytes;
  const std::uint32_t end = static_cast<std::uint32_t>(tiling.stages) * stage_bytes;
  for (int step = 0; step < count; ++step) {
    wait_for_stage(tiling.stages);
    __syncthreads();
    if (step + tiling.stages - 1 < count) copies.issue(memory + next, memory + next + row_bytes);
    ptx::copy_commit();
    if constexpr (Operand::kSplit)
      products.multiply_split(at, tiling.step, sums);
    else
      products.multiply_whole(at, tiling.step, sums);
    at = at + stage_bytes == end ? 0 : at + stage_bytes;
    next = next + stage_bytes == end ? 0 : next + stage_bytes;
  }
  ptx::copy_wait<0>();
}

/// partial[slice][job][vector of 4 sums][thread] = the sums of the first piece, += those of the later ones.
template <class Operand, int kRowWarps, int kColumnWarps, int kBlocksPerSm>
__global__ void __launch_bounds__(kRowWarps* kColumnWarps * 32, kBlocksPerSm)
    mma_wgrad_kernel(const __grid_constant__ MmaWgradTiling tiling, bool is_first, const unsigned char* __restrict__ rows,
                     const unsigned char* __restrict__ columns, const WgradScales* __restrict__ scales,
                     float4* __restrict__ partial) {
  constexpr int kThreads = kRowWarps * kColumnWarps * 32, kColumns = kMmaColumnsOfWarp<Operand>;
  extern __shared__ __align__(128) unsigned char raw[];
  const MmaWgradPlace place(blockIdx.x, tiling);
  float sums[4][kColumns / 8][4] = {};
  mma_wgrad_sums<Operand, kRowWarps, kColumnWarps>(tiling, place, rows, columns, ptx::shared_address(raw), sums);
  // Two factors: a single one could exceed the range of float.
  int exponent = 0;
  if constexpr (Operand::kScaled)
    exponent = -scale_exponent(largest_of(scales->x_largest), kSourceTarget) -
               scale_exponent(largest_of(scales->y_largest), kSourceTarget);
  const float scale = power_of_two(exponent / 2), again = power_of_two(exponent - exponent / 2);
  float4* to = partial + static_cast<std::int64_t>(blockIdx.x) * (kColumns / 2 * kThreads) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const float(&v)[4] = sums[i / (kColumns / 8)][i % (kColumns / 8)];
    float4 sum = make_float4(v[0] * scale * again, v[1] * scale * again, v[2] * scale * again, v[3] * scale * again);
    if (!is_first) {
      const float4 before = to[i * kThreads];
      sum = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
    }
    to[i * kThreads] = sum;
  }
}

/// Maps a partial sum to its weight, for reduce_slices.
template <class Operand, int kRowWarps, int kColumnWarps>
struct MmaWgradOrder {
  MmaWgradTiling tiling;
  std::int64_t K;

  /// -1 if there is no weight.
  __device__ __forceinline__ std::int64_t operator()(std::int64_t i) const {
    constexpr int kThreads = kRowWarps * kColumnWarps * 32, kVectors = kMmaColumnsOfWarp<Operand> / 8;
    constexpr int kSums = 4 * kVectors * 4 * kThreads;
    const std::int64_t job = i / kSums;
    const auto own = static_cast<int>(i - job * kSums);
    const int element = own % 4, thread = own / 4 % kThreads, quad = own / 4 / kThreads;
    const int warp = thread / 32, lane = thread % 32;
    const MmaWgradPlace place(job, tiling);
    const int row_block = place.row_tile * tiling.rows.tile + warp % kRowWarps * 8 + quad / kVectors * 2 + element / 2;
    const int vector = place.column_tile * tiling.vectors_of_tile + warp / kRowWarps * kVectors + quad % kVectors;
    const int column_block = vector / tiling.shifts_of_tile;
    const int shift = place.first_shift(tiling) + vector - column_block * tiling.shifts_of_tile;
    const int row = row_block / tiling.rows.planes * 8 + lane / 4;
    const int column = column_block / tiling.columns.planes * 8 + 2 * (lane % 4) + element % 2;
    const int plane = tiling.swapped ? row_block % tiling.rows.planes : column_block % tiling.columns.planes;
    const std::int64_t k = plane + std::int64_t{tiling.q} * shift;
    if (row_block >= tiling.rows.blocks || vector >= tiling.vectors || shift >= tiling.shifts || row >= tiling.rows.channels ||
        column >= tiling.columns.channels || k >= K)
      return -1;
    const int ci = tiling.swapped ? column : row, co = tiling.swapped ? row : column;
    const int in = tiling.swapped ? tiling.columns.channels : tiling.rows.channels;
    const int out = tiling.swapped ? tiling.rows.channels : tiling.columns.channels;
    return ((std::int64_t{place.group} * in + ci) * out + co) * K + k;
  }
};

}  // namespace polyphase::cuda::tensor_core
