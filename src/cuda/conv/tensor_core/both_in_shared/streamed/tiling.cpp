#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"

#include <algorithm>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kStagesMost = 8;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Sizes of a step of `rows` x `planes` x `taps`.
void measure(const TapGemm& form, const TileShape& tile, int rows, int planes, int taps, Steps& steps) {
  steps.rows = rows;
  steps.planes = planes;
  steps.taps = taps;
  steps.row_steps = static_cast<int>(pieces(form.rows, rows));
  steps.plane_steps = static_cast<int>(pieces(form.planes, planes));
  steps.tap_steps = static_cast<int>(pieces(form.taps, taps));
  steps.count = steps.row_steps * steps.plane_steps * steps.tap_steps;
  const auto window = static_cast<int>((tile.positions + (taps - 1) * form.tap_step + 7) / 8 * 8);
  steps.tile = make_tile(form.source_length, form.source_stride, form.source_plane_step, rows, planes, window, tile.vector);
  steps.source_bytes = tile.parts * steps.tile.items * 16;
  steps.weight_bytes = tile.parts * taps * planes * (rows / tile.vector) * tile.columns * 16;
}

/// Chooses where the weights lie. False where fewer than `least` stages fit.
bool place(const Steps& wanted, int available, bool may_stay, int least, Steps& steps) {
  steps = wanted;
  const std::int64_t all_weights = static_cast<std::int64_t>(steps.count) * steps.weight_bytes;
  if (may_stay && all_weights + std::int64_t{3} * steps.source_bytes <= available) {
    steps.weight_buffers = steps.count;
    steps.resident = true;
    steps.stages = static_cast<int>(std::min<std::int64_t>(kStagesMost, (available - all_weights) / steps.source_bytes));
    return true;
  }
  steps.stages = std::min(kStagesMost, available / (steps.source_bytes + steps.weight_bytes));
  steps.weight_buffers = steps.stages;
  return steps.stages >= least;
}

}  // namespace

Steps make_steps(const TapGemm& form, const TileShape& tile, int sm_count, int shared_limit) {
  Steps best{};
  const int available = shared_limit - kStagingBytes - kBarrierBytes - 128;
  const std::int64_t column_tiles = pieces(form.columns, tile.columns);
  const std::int64_t weight_tiles = column_tiles * form.G;
  const bool may_stay = weight_tiles <= sm_count;
  bool found = false;
  for (const int least : {4, 3, 2}) {
    for (int taps = static_cast<int>(form.taps); taps >= 1 && !found; taps = taps == 1 ? 0 : (taps + 1) / 2) {
      for (int planes = static_cast<int>(form.planes); planes >= 1 && !found; planes = planes == 1 ? 0 : (planes + 1) / 2) {
        for (int depths = 4; depths >= 1 && !found; depths /= 2) {
          if (depths > 1 && (depths / 2) * tile.depth >= form.rows) continue;
          Steps wanted{};
          if (static_cast<std::int64_t>(tile.positions) + (taps - 1) * form.tap_step > 16384) continue;
          measure(form, tile, depths * tile.depth, planes, taps, wanted);
          found = place(wanted, available, may_stay, least, best);
        }
      }
    }
    if (found) break;
  }
  if (!found) return {};
  best.weight_tiles = weight_tiles;
  best.position_tiles = pieces(form.position_count, tile.positions);
  best.position_begin = form.position_begin;
  best.position_step = tile.positions;
  best.blocks = form.N * weight_tiles * best.position_tiles;
  const std::int64_t wide = best.resident ? sm_count / weight_tiles * weight_tiles : sm_count;
  best.grid = static_cast<unsigned>(std::min(best.blocks, wide));
  best.shared_bytes =
      128 + best.stages * best.source_bytes + best.weight_buffers * best.weight_bytes + kStagingBytes + kBarrierBytes;
  best.by_weight_tiles = FastDivide(static_cast<std::uint32_t>(weight_tiles));
  best.by_position_tiles = FastDivide(static_cast<std::uint32_t>(best.position_tiles));
  best.by_column_tiles = FastDivide(static_cast<std::uint32_t>(column_tiles));
  best.by_classes = FastDivide(static_cast<std::uint32_t>(form.classes));
  best.by_gcd = FastDivide(static_cast<std::uint32_t>(form.out_gcd));
  return best;
}

}  // namespace polyphase::cuda::tensor_core
