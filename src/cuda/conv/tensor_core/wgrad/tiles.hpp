#pragma once
// The weights that a block of the tensor-core weight gradient sums: errors of its numbers affect only these.

#include <algorithm>
#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"

namespace polyphase::cuda::tensor_core {

struct WgradTiles {
  /// Blocks of 8 channels of a plane, the plane the faster (WgradSide).
  struct Side {
    std::int64_t channels, planes, tile, tiles;  // channels per group; blocks per tile
    [[nodiscard]] constexpr std::int64_t tile_of(std::int64_t channel, std::int64_t plane) const {
      return (channel / 8 * planes + plane) / tile;
    }
    /// The most channels of a tile.
    [[nodiscard]] constexpr std::int64_t most_channels() const {
      const std::int64_t blocks = tile % planes == 0 ? tile / planes : planes % tile == 0 ? 1 : (tile - 1) / planes + 2;
      return 8 * blocks < channels ? 8 * blocks : channels;
    }
  };
  Side rows, columns;
  bool swapped;
  std::int64_t K, q, shifts, shift_tiles;
  std::int64_t jobs = 1;  // blocks per slice; 1: all weights are in one tile, and the rest is unused

  [[nodiscard]] constexpr const Side& of_x() const { return swapped ? columns : rows; }
  [[nodiscard]] constexpr const Side& of_y() const { return swapped ? rows : columns; }
};

/// The job (WgradTiling) of weight i.
[[nodiscard]] constexpr std::int64_t job_of(const WgradTiles& tiles, std::int64_t i) {
  if (tiles.jobs == 1) return 0;
  const std::int64_t in = tiles.of_x().channels, out = tiles.of_y().channels;
  const std::int64_t k = i % tiles.K, ci = i / tiles.K / out;
  const std::int64_t of_x = tiles.of_x().tile_of(ci % in, 0), of_y = tiles.of_y().tile_of(i / tiles.K % out, k % tiles.q);
  const std::int64_t row = tiles.swapped ? of_y : of_x, column = tiles.swapped ? of_x : of_y;
  return ((ci / in * tiles.rows.tiles + row) * tiles.columns.tiles + column) * tiles.shift_tiles + k / tiles.q / tiles.shifts;
}

/// All taps of a job's channels; includes weights of other jobs if planes or shifts are split over several. With a single job
/// all weights.
struct WgradBox {
  std::int64_t first;      // weight
  std::int64_t step;       // weights from channel to channel of x
  std::uint32_t channels;  // of x
  std::uint32_t run;       // consecutive weights
  /// The weight at place `own`, or -1 if there is none.
  [[nodiscard]] constexpr std::int64_t at(std::int64_t own, std::int64_t weights) const {
    if (channels == 0) return own < weights ? own : -1;
    const std::uint32_t channel = static_cast<std::uint32_t>(own) / run;
    return channel < channels ? first + channel * step + (own - std::int64_t{channel} * run) : -1;
  }
};

[[nodiscard]] constexpr WgradBox box_of(const WgradTiles& tiles, std::int64_t job) {
  if (tiles.jobs == 1) return {};
  job /= tiles.shift_tiles;
  const std::int64_t column = job % tiles.columns.tiles, row = job / tiles.columns.tiles % tiles.rows.tiles;
  const std::int64_t group = job / tiles.columns.tiles / tiles.rows.tiles;
  struct Channels {
    std::int64_t first, count;
  };
  const auto channels_of = [](const WgradTiles::Side& side, std::int64_t tile) -> Channels {
    const std::int64_t first = tile * side.tile / side.planes * 8;
    const std::int64_t end = ((tile + 1) * side.tile - 1) / side.planes * 8 + 8;
    return {first, (end < side.channels ? end : side.channels) - first};
  };
  const Channels of_x = channels_of(tiles.of_x(), tiles.swapped ? column : row);
  const Channels of_y = channels_of(tiles.of_y(), tiles.swapped ? row : column);
  const std::int64_t step = tiles.of_y().channels * tiles.K;
  return {(group * tiles.of_x().channels + of_x.first) * step + of_y.first * tiles.K, step,
          static_cast<std::uint32_t>(of_x.count), static_cast<std::uint32_t>(of_y.count * tiles.K)};
}

/// Places of the largest box.
[[nodiscard]] constexpr std::int64_t box_size(const WgradTiles& tiles, std::int64_t weights) {
  return tiles.jobs == 1 ? weights : tiles.of_x().most_channels() * tiles.of_y().most_channels() * tiles.K;
}

[[nodiscard]] inline WgradTiles make_wgrad_tiles(const ConvProblem& problem, const WgradTiling& tiling) {
  const auto side = [](const WgradSide& of, int tiles) -> WgradTiles::Side { return {of.channels, of.planes, of.tile, tiles}; };
  const WgradTiles tiles{side(tiling.rows, tiling.row_tiles),
                         side(tiling.columns, tiling.column_tiles),
                         tiling.swapped,
                         problem.K,
                         tiling.q,
                         tiling.shape.shifts,
                         tiling.shift_tiles,
                         tiling.jobs};
  return box_size(tiles, 0) <= INT32_MAX ? tiles : WgradTiles{};  // a place has 32 bits
}

}  // namespace polyphase::cuda::tensor_core
