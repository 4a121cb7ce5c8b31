#pragma once
// What precedes the conversions and products: the list of units, the weights as operands with a scale for each column, and the
// magnitudes of the units.

#include <cstdint>

#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/look.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/ptx/acquire.cuh"

namespace polyphase::cuda::tensor_core {

/// Lists those of kByTileConsumers units that have something to compute.
__device__ __forceinline__ void list_units(const ByTileCall& call, int piece) {
  const std::int64_t index = std::int64_t{piece} * kByTileConsumers + threadIdx.x;
  if (index >= call.tiling.units) return;
  const ByTileUnit unit(call.tiling, call.gemm, static_cast<std::uint32_t>(index));
  if (is_unit_wanted(call, unit))
    call.arrays.unit_list[atomicAdd(&call.arrays.words->units, 1U)] = static_cast<std::uint32_t>(index);
}

/// The weights of a packed column.
class ColumnWeights {
 public:
  __device__ __forceinline__ ColumnWeights(const ByTileCall& call, std::int64_t g, std::int64_t column)
      : gemm_(call.gemm), problem_(call.exact.problem), is_forward_(call.exact.is_forward) {
    const std::int64_t out = problem_.C_out / problem_.G, in = problem_.C_in / problem_.G;
    const std::int64_t channel = column / gemm_.classes;
    class_ = static_cast<int>(column - channel * gemm_.classes);
    row_step_ = (is_forward_ ? out : 1) * problem_.K;
    own_ = call.exact.w + ((g * in + (is_forward_ ? 0 : column)) * out + (is_forward_ ? channel : 0)) * problem_.K;
    exists_ = column < gemm_.columns;
  }
  /// Zero where there is none.
  __device__ __forceinline__ float at(int row, int plane, int window) const {
    const auto taps = static_cast<int>(gemm_.taps);
    const int k =
        (is_forward_ ? class_ : plane) + (is_forward_ ? taps - 1 - window : window) * static_cast<int>(gemm_.phase_classes);
    const bool exists = exists_ && row < gemm_.rows && plane < gemm_.planes && window < taps && k < problem_.K;
    return exists ? own_[row * row_step_ + k] : 0.0F;
  }

 private:
  const TapGemm& gemm_;
  const ConvProblem& problem_;
  bool is_forward_, exists_;
  int class_;
  std::int64_t row_step_;
  const float* own_;
};

/// packed[group][column tile][step][tap][plane][part][block][column][16 bytes], as the pipeline of the preconverted kernel
/// reads it: eight columns of one form.
template <int kForm, int kParts>
__device__ __forceinline__ void pack_columns(const ByTileCall& call, const ColumnWeights& weights, std::int64_t tile,
                                             int column, int part_of_rows, const PowerPair& scale) {
  const PreconvertedTiling& steps = call.tiling.steps;
  const auto planes = static_cast<int>(call.gemm.planes), all_planes = static_cast<int>(steps.source.planes);
  const int count = call.tiling.counts[kForm];
  auto* const to = reinterpret_cast<uint4*>(call.arrays.weights[kForm] + tile * count * std::int64_t{steps.weight_bytes});
  const int of_step = steps.taps * steps.planes * kPreconvertedBlocks, vectors = count * of_step;
#pragma unroll 1
  for (int i = part_of_rows * (kByTileConsumers / kPackColumns) + static_cast<int>(threadIdx.x) / kPackColumns; i < vectors;
       i += kPackParts * (kByTileConsumers / kPackColumns)) {
    const int block = i % kPreconvertedBlocks, plane_in_step = i / kPreconvertedBlocks % steps.planes;
    const int in_step = i % of_step, tap_in_step = in_step / (kPreconvertedBlocks * steps.planes);
    int step = i / of_step;
    const int tap_step = step % steps.tap_steps;
    step /= steps.tap_steps;
    const int plane_step = step % steps.plane_steps, row_step = step / steps.plane_steps;
    const int of_planes = plane_step * steps.planes + plane_in_step, of_taps = tap_step * steps.taps + tap_in_step;
    const bool apart = steps.source.taps_apart;
    const int window = apart ? of_planes / planes : of_taps, plane = apart ? of_planes % planes : of_planes;
    const bool exists = of_planes < all_planes && (!apart || of_taps == 0);
    const int row = (row_step * kPreconvertedBlocks + block) * rows_of_vector(kForm);
    float values[rows_of_vector(kForm)];
#pragma unroll
    for (int r = 0; r < rows_of_vector(kForm); ++r) values[r] = exists ? weights.at(row + r, plane, window) : 0.0F;
    uint4 parts[kParts];
    make_parts<kForm>(values, scale, parts);
    const std::int64_t first = i / kPreconvertedBlocks * std::int64_t{kParts * kPreconvertedBlocks} + block;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      to[(first + part * kPreconvertedBlocks) * steps.tile_columns + column] = parts[part];
  }
}

/// Packs some rows of eight columns in both forms. A thread packs numbers of one column.
template <int kParts>
__device__ __forceinline__ void pack_weights(const ByTileCall& call, int piece) {
  const PreconvertedTiling& steps = call.tiling.steps;
  const int pieces = steps.tile_columns / kPackColumns, own = static_cast<int>(threadIdx.x) % kPackColumns;
  const int part_of_rows = piece % kPackParts;
  piece /= kPackParts;
  const std::int64_t tile = piece / pieces, g = tile / steps.column_tiles;
  const int in_tile = piece % pieces * kPackColumns + own, subtiles = steps.tile_columns / kPreconvertedSubtile;
  const int in_subtile = in_tile % kPreconvertedSubtile;
  const std::int64_t subtile = (tile - g * steps.column_tiles) * subtiles + in_tile / kPreconvertedSubtile;
  const ColumnWeights weights(call, g, in_subtile < steps.usable ? subtile * steps.usable + in_subtile : call.gemm.columns);
  ByTileShared& shared = call.shared;
  if (threadIdx.x < kPackColumns) {
    const Magnitudes none;
    shared.most[own] = none.most, shared.least[own] = none.least, shared.unusual[own] = 0;
  }
  meet_consumers();
  const auto planes = static_cast<int>(call.gemm.planes), taps = static_cast<int>(call.gemm.taps);
  const int count = static_cast<int>(call.gemm.rows) * planes * taps;
  Magnitudes found;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x) / kPackColumns; i < count; i += kByTileConsumers / kPackColumns)
    found.add(weights.at(i / (planes * taps), i % planes, i / planes % taps));
  if (found.most != 0) {
    atomicMax(&shared.most[own], found.most);
    atomicMin(&shared.least[own], found.least);
  }
  if (found.unusual != 0) shared.unusual[own] = 1;
  meet_consumers();
  found = {shared.most[own], shared.least[own], shared.unusual[own]};
  const int exponent = exponent_of(found.most);
  if (threadIdx.x < kPackColumns && part_of_rows == 0) {
    call.arrays.exponents[tile * steps.tile_columns + in_tile] = exponent;
    if (found.needs_tf32()) atomicOr(&call.arrays.words->needs_tf32, 1U);
  }
  pack_columns<kFormF16, kParts>(call, weights, tile, in_tile, part_of_rows, PowerPair(weight_target(kFormF16) - exponent));
  pack_columns<kFormTf32, kParts>(call, weights, tile, in_tile, part_of_rows, PowerPair(weight_target(kFormTf32) - exponent));
}

/// The preparation, by all blocks; ends when all of it is done.
template <int kParts>
__device__ __noinline__ void prepare_by_tile(const ByTileCall call) {
  const auto pieces = static_cast<std::uint32_t>(call.tiling.list_pieces + call.tiling.pack_pieces);
#pragma unroll 1
  for (;;) {
    if (threadIdx.x == 0) call.shared.piece = atomicAdd(&call.arrays.words->piece, 1U);
    meet_consumers();
    const std::uint32_t piece = call.shared.piece;
    meet_consumers();  // all have read it
    if (piece >= pieces) break;
    if (piece < static_cast<std::uint32_t>(call.tiling.list_pieces))
      list_units(call, static_cast<int>(piece));
    else
      pack_weights<kParts>(call, static_cast<int>(piece) - call.tiling.list_pieces);
    __threadfence();
    ptx::fence_async_global();
    meet_consumers();
    if (threadIdx.x == 0) ptx::add_release(&call.arrays.words->prepared, 1);
  }
  look_at_units(call);
  if (threadIdx.x == 0) {
    const auto all = pieces + static_cast<std::uint32_t>(call.tiling.units) * static_cast<std::uint32_t>(call.tiling.parts);
    while (ptx::load_acquire(&call.arrays.words->prepared) != all) __nanosleep(100);
  }
  meet_consumers();
}

}  // namespace polyphase::cuda::tensor_core
