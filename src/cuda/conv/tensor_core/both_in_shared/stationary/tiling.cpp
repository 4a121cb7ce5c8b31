#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

#include <algorithm>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8, kDepth = 16;  // rows in an operand's 16 bytes; rows per wgmma
constexpr int kThreads = 128;            // that convert
constexpr int kLongestRowWindow = 8192;
// Sums of two parts are not accumulated in f32 in between. Up to this many products the truncation of the tensor cores stays
// below twice the rounding of plain f32 sums.
constexpr std::int64_t kLongestSplitSum = 640;

/// Whether two neighbouring 16-bit elements are converted at a time.
void choose_pairs(const TapGemm& gemm, const StationaryShape& shape, StationaryTiling& tiling) {
  tiling.is_paired = shape.element_bytes == 2 && shape.positions == 256 && shape.is_word_aligned && gemm.planes == 1 &&
                     gemm.source_stride == 1 && gemm.source_length % 2 == 0 && tiling.position_step % 2 == 0;
  tiling.shift = tiling.is_paired ? static_cast<int>((tiling.position_begin + gemm.source_origin) & 1) : 0;
}

/// The sizes of a step of `rows` x `planes` x all taps.
void measure(const TapGemm& gemm, const StationaryShape& shape, int rows, int planes, StationaryTiling& tiling) {
  tiling.rows = rows;
  tiling.planes = planes;
  tiling.taps = static_cast<int>(gemm.taps);
  tiling.row_steps = static_cast<int>(divide_up(gemm.rows, rows));
  tiling.plane_steps = static_cast<int>(divide_up(gemm.planes, planes));
  tiling.count = tiling.row_steps * tiling.plane_steps;
  const int grain = tiling.is_paired ? 2 : 1;
  const auto window =
      static_cast<int>(divide_up(shape.positions + (gemm.taps - 1) * gemm.tap_step + tiling.shift, grain) * grain);
  tiling.tile = make_tile(gemm.source_length, gemm.source_stride, gemm.source_plane_step, rows, planes, window, kVector);
  tiling.source_bytes = shape.parts * tiling.tile.items * 16;
  tiling.weight_bytes = shape.parts * tiling.taps * planes * (rows / kVector) * kStationaryColumns * 16;
  const std::int64_t span = gemm.source_stride * (window - 1) + (planes - 1) * gemm.source_plane_step + 1;
  tiling.raw_pitch = static_cast<int>(divide_up(span * shape.element_bytes + 15, 16) * 16);
  tiling.raw_bytes = rows * tiling.raw_pitch;
}

/// Divides `available` bytes among the weights and the pairs' rings. False if fewer than `least` raw stages are left.
bool divide_memory(int available, int least, StationaryTiling& tiling) {
  const std::int64_t weights = static_cast<std::int64_t>(tiling.count) * tiling.weight_bytes;
  const std::int64_t each = (available - weights) / kPairs;
  tiling.stages = each - std::int64_t{4} * tiling.raw_bytes >= std::int64_t{kStationaryStagesMost} * tiling.source_bytes
                      ? kStationaryStagesMost
                      : 2;
  const std::int64_t left = each - static_cast<std::int64_t>(tiling.stages) * tiling.source_bytes;
  if (weights > available || left < static_cast<std::int64_t>(least) * tiling.raw_bytes) return false;
  tiling.raw_stages = static_cast<int>(std::min<std::int64_t>(6, left / tiling.raw_bytes));
  return true;
}

/// The wgmmas of a step, in the order of packed weights: [tap][plane][part][block of rows].
bool list_products(const TapGemm& gemm, const StationaryShape& shape, StationaryTiling& tiling) {
  const int groups = tiling.rows / kDepth, blocks = tiling.rows / kVector;
  if (tiling.taps * tiling.planes * groups > kProductsMost) return false;
  int count = 0;
  for (int tap = 0; tap < tiling.taps; ++tap) {
    for (int plane = 0; plane < tiling.planes; ++plane) {
      for (int group = 0; group < groups; ++group) {
        const int weights = (tap * tiling.planes + plane) * shape.parts * blocks + group * (kDepth / kVector);
        const std::int64_t source =
            static_cast<std::int64_t>(plane * blocks + group * (kDepth / kVector)) * tiling.tile.window + tap * gemm.tap_step +
            tiling.shift;
        tiling.products[count++] = {static_cast<std::uint32_t>(weights) * kStationaryColumns,
                                    static_cast<std::uint32_t>(source)};
      }
    }
  }
  tiling.product_count = count;
  return true;
}

void set_advances(const StationaryShape& shape, StationaryTiling& tiling) {
  const Tile& tile = tiling.tile;
  const int width = tiling.is_paired ? 2 : 1, plane_bytes = (tiling.rows / kVector) * tile.window * 16;
  tiling.next_plane = kThreads % tiling.planes;
  tiling.next_position = kThreads / tiling.planes;
  tiling.next_from = (tiling.next_position * width * tile.stride + tiling.next_plane * tile.plane_step) * shape.element_bytes;
  tiling.next_to = tiling.next_plane * plane_bytes + tiling.next_position * width * 16;
  tiling.wrap_from = (tile.stride - tiling.planes * tile.plane_step) * shape.element_bytes;
  tiling.wrap_to = 16 - tiling.planes * plane_bytes;
  tiling.block_from = kVector * tiling.raw_pitch - tile.window * tile.stride * shape.element_bytes;
}

}  // namespace

StationaryTiling make_stationary_tiling(const TapGemm& gemm, const StationaryShape& shape, int sm_count, int shared_limit) {
  const std::int64_t products = gemm.rows * gemm.planes * gemm.taps;
  const std::int64_t span =
      gemm.source_stride * (shape.positions + (gemm.taps - 1) * gemm.tap_step) + gemm.planes * gemm.source_plane_step;
  if (span > kLongestRowWindow || (shape.parts == 2 && products > kLongestSplitSum)) return {};
  const int staged_bytes = shape.element_bytes;
  const int suspect_bytes = shape.element_bytes == 4 ? kPairSuspectBytes : 0;
  const int fixed = 128 + kPairs * (pair_staging_bytes(shape.positions, staged_bytes) + kPairBarrierBytes + suspect_bytes) + 64;
  StationaryTiling tiling{};
  tiling.columns = kStationaryColumns;
  choose_tiles(gemm, shape.positions, shape.element_bytes, shape.is_sector_aligned, tiling);
  choose_pairs(gemm, shape, tiling);
  if (shape.element_bytes == 2 && shape.positions == 256 && !tiling.is_paired) return {};  // there is no such instance
  bool found = false;
  // Long steps for 16-bit elements: their conversion is short compared with the fixed cost of a step.
  const bool is_short = shape.element_bytes == 2;
  // All planes of a row in one step, if necessary with less of the source outstanding. Planes in several steps are copied once
  // per step.
  for (auto planes = static_cast<int>(gemm.planes); planes >= 1 && !found; planes = planes == 1 ? 0 : (planes + 1) / 2) {
    for (const int least : {is_short ? 2 : 3, 2}) {
      for (int rows = (is_short ? 4 : 2) * kDepth; rows >= kDepth && !found; rows /= 2) {
        if (rows > kDepth && rows / 2 >= gemm.rows) continue;
        measure(gemm, shape, rows, planes, tiling);
        found = divide_memory(shared_limit - fixed, least, tiling) && list_products(gemm, shape, tiling);
      }
    }
  }
  if (!found || !count_tiles(gemm, sm_count, tiling)) return {};
  set_advances(shape, tiling);
  // f32 with one part is faster without ordering: its stores are no longer than its products.
  tiling.turn_step = shape.parts == 1 && shape.element_bytes == 4 ? -1 : (tiling.count - 1) / 2;
  tiling.shared_bytes = fixed + tiling.count * tiling.weight_bytes +
                        kPairs * (tiling.stages * tiling.source_bytes + tiling.raw_stages * tiling.raw_bytes);
  return tiling;
}

}  // namespace polyphase::cuda::tensor_core
