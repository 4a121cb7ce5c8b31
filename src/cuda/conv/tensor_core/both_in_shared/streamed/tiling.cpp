#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"

#include <algorithm>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kStagesMost = 8;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Sizes of a step of `rows` x `planes` x `taps`.
void measure(const TapGemm& gemm, const TileShape& tile, int rows, int planes, int taps, Tiling& tiling) {
  tiling.rows = rows;
  tiling.planes = planes;
  tiling.taps = taps;
  tiling.row_steps = static_cast<int>(pieces(gemm.rows, rows));
  tiling.plane_steps = static_cast<int>(pieces(gemm.planes, planes));
  tiling.tap_steps = static_cast<int>(pieces(gemm.taps, taps));
  tiling.count = tiling.row_steps * tiling.plane_steps * tiling.tap_steps;
  const auto window = static_cast<int>((tile.positions + (taps - 1) * gemm.tap_step + 7) / 8 * 8);
  tiling.tile = make_tile(gemm.source_length, gemm.source_stride, gemm.source_plane_step, rows, planes, window, tile.vector);
  tiling.source_bytes = tile.parts * tiling.tile.items * 16;
  tiling.weight_bytes = tile.parts * taps * planes * (rows / tile.vector) * tile.columns * 16;
}

/// Chooses where the weights lie. False where fewer than `least` stages fit.
bool place(const Tiling& wanted, int available, bool may_stay, int least, Tiling& tiling) {
  tiling = wanted;
  const std::int64_t all_weights = static_cast<std::int64_t>(tiling.count) * tiling.weight_bytes;
  if (may_stay && all_weights + std::int64_t{3} * tiling.source_bytes <= available) {
    tiling.weight_buffers = tiling.count;
    tiling.stationary = true;
    tiling.stages = static_cast<int>(std::min<std::int64_t>(kStagesMost, (available - all_weights) / tiling.source_bytes));
    return true;
  }
  tiling.stages = std::min(kStagesMost, available / (tiling.source_bytes + tiling.weight_bytes));
  tiling.weight_buffers = tiling.stages;
  return tiling.stages >= least;
}

}  // namespace

Tiling make_tiling(const TapGemm& gemm, const TileShape& tile, int sm_count, int shared_limit) {
  Tiling best{};
  const int available = shared_limit - kStagingBytes - kBarrierBytes - 128;
  const std::int64_t column_tiles = pieces(gemm.columns, tile.columns);
  const std::int64_t weight_tiles = column_tiles * gemm.G;
  const bool may_stay = weight_tiles <= sm_count;
  bool found = false;
  for (const int least : {4, 3, 2}) {
    for (int taps = static_cast<int>(gemm.taps); taps >= 1 && !found; taps = taps == 1 ? 0 : (taps + 1) / 2) {
      for (int planes = static_cast<int>(gemm.planes); planes >= 1 && !found; planes = planes == 1 ? 0 : (planes + 1) / 2) {
        for (int depths = 4; depths >= 1 && !found; depths /= 2) {
          if (depths > 1 && (depths / 2) * tile.depth >= gemm.rows) continue;
          Tiling wanted{};
          if (static_cast<std::int64_t>(tile.positions) + (taps - 1) * gemm.tap_step > 16384) continue;
          measure(gemm, tile, depths * tile.depth, planes, taps, wanted);
          found = place(wanted, available, may_stay, least, best);
        }
      }
    }
    if (found) break;
  }
  if (!found) return {};
  best.weight_tiles = weight_tiles;
  best.position_tiles = pieces(gemm.position_count, tile.positions);
  best.position_begin = gemm.position_begin;
  best.position_step = tile.positions;
  best.blocks = gemm.N * weight_tiles * best.position_tiles;
  const std::int64_t wide = best.stationary ? sm_count / weight_tiles * weight_tiles : sm_count;
  best.grid = static_cast<unsigned>(std::min(best.blocks, wide));
  best.shared_bytes =
      128 + best.stages * best.source_bytes + best.weight_buffers * best.weight_bytes + kStagingBytes + kBarrierBytes;
  best.by_weight_tiles = FastDivide(static_cast<std::uint32_t>(weight_tiles));
  best.by_position_tiles = FastDivide(static_cast<std::uint32_t>(best.position_tiles));
  best.by_column_tiles = FastDivide(static_cast<std::uint32_t>(column_tiles));
  best.by_classes = FastDivide(static_cast<std::uint32_t>(gemm.classes));
  best.by_gcd = FastDivide(static_cast<std::uint32_t>(gemm.out_gcd));
  return best;
}

}  // namespace polyphase::cuda::tensor_core
