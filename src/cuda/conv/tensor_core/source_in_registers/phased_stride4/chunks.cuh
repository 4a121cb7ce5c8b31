#pragma once
// The products of kernel.cuh and f32_kernel.cuh, and the order of their packed weights.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// One product of kPhased4Rows rows: columns of a tile from `column` on, with the neighbour `shift` after the first.
struct Phased4Chunk {
  int shift, column, columns;
};
/// All products of kPhased4Rows rows, in the order of the packed weights.
struct Phased4Chunks {
  Phased4Chunk of[24];
  int count;
  __host__ __device__ constexpr int columns_before(int index) const {
    int columns = 0;
    for (int i = 0; i < index; ++i) columns += of[i].columns;
    return columns;
  }
};

/// The tile of a block.
struct Phased4Place {
  std::int64_t n, unit;
  std::uint32_t column_tile;
  std::int64_t g, first_channel;  // relative to its group
};
/// The tiles of a block, one after another.
struct Phased4Walk {
  std::uint32_t turn = blockIdx.x;
  __device__ __forceinline__ bool more(const Phased4Tiling& tiling) const { return turn < tiling.turns; }
  __device__ __forceinline__ void advance() { turn += gridDim.x; }
  __device__ __forceinline__ Phased4Place place(const Phased4Tiling& tiling) const {
    const std::uint32_t tile = tiling.by_column_tiles.divide(turn);
    Phased4Place place;
    place.column_tile = turn - tile * tiling.by_column_tiles.divisor;
    const std::uint32_t n = tiling.by_tiles_of_row.divide(tile), g = tiling.by_channel_tiles.divide(place.column_tile);
    place.n = n;
    place.unit = static_cast<std::int64_t>(tile - n * tiling.by_tiles_of_row.divisor) * kPhased4Positions;
    place.g = g;
    place.first_channel = static_cast<std::int64_t>(place.column_tile - g * tiling.by_channel_tiles.divisor) * tiling.channels;
    return place;
  }
};

/// The weights in 16 bytes of the packed ones: [column tile][16 rows][product][8 rows][column][8 of 16 rows]. Row 4*(2*h + e) +
/// q of 16 is at 8*h + 2*q + e. Zero where there is no channel.
template <class T>
struct Phased4Piece {
  int at, columns;  // the index in its product, and the product's number of columns
  T values[kPreconvertedRows];
  __device__ __forceinline__ Phased4Piece(const ConvProblem& problem, const Phased4Tiling& tiling, const Phased4Chunks& chunks,
                                          std::int64_t of_depth, std::int64_t index, const T* __restrict__ w) {
    const std::int64_t depth = index / of_depth, tile = depth / tiling.count, row0 = depth % tiling.count * kPhased4Rows;
    at = static_cast<int>(index - depth * of_depth);
    int c = 0;
    for (; at >= 2 * chunks.of[c].columns; ++c) at -= 2 * chunks.of[c].columns;
    columns = chunks.of[c].columns;
    const int h = at / columns, column = chunks.of[c].column + at - h * columns;
    const std::int64_t rows = problem.C_in / problem.G, out = problem.C_out / problem.G;
    const std::int64_t tiles = tiling.column_tiles / problem.G, g = tile / tiles;
    const std::int64_t r = column / tiling.channels, channel = tile % tiles * tiling.channels + column % tiling.channels;
    const std::int64_t k = r + problem.P_l - problem.S * (tiling.first_shift + chunks.of[c].shift);
#pragma unroll
    for (int i = 0; i < kPreconvertedRows; ++i) {
      const std::int64_t row = row0 + 4 * (2 * h + i % 2) + i / 2;
      values[i] = channel < out ? w[((g * rows + row) * out + channel) * problem.K + k] : T(0.0F);
    }
  }
};

/// Computes output `t` of a channel of the place's group by FFMA: a warp sums it, lane `writer` writes it.
template <class T>
__device__ __forceinline__ void recompute_unit(const TapGemm& gemm, const Epilogue& epilogue, const ExactSource<T>& exact,
                                               const T* __restrict__ bias, T* __restrict__ out, const Phased4Place& place,
                                               std::int64_t channel, std::int64_t t, int writer) {
  const std::int64_t a = (t - gemm.out_origin) % gemm.out_stride, position = (t - gemm.out_origin - a) / gemm.out_stride;
  const float sum = exact_sum(gemm, exact, true, place.n, place.g, channel * gemm.classes + a, position);
  if (static_cast<int>(threadIdx.x % 32) != writer) return;
  const std::int64_t row = place.g * gemm.out_channels + channel;
  const auto biased = static_cast<T>(sum + (bias != nullptr ? static_cast<float>(bias[row]) : 0.0F));
  out[(place.n * gemm.G * gemm.out_channels + row) * gemm.out_length + t] =
      static_cast<T>(epilogue.apply(static_cast<float>(biased)));
}

}  // namespace polyphase::cuda::tensor_core
