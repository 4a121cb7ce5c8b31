#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8;                      // rows in an operand's 16 bytes
constexpr int kSector = 32;                     // bytes
constexpr std::int64_t kLongestSplitSum = 640;  // as in make_stationary_tiling
constexpr int kStagesMost = 8;
constexpr int kBytesOfRun =
    4096;  // of a row, at most: blocks that work on distant parts of a row cost more than longer runs save
constexpr std::int64_t kCommonMost = 4;    // common divisor of a row's runs and the blocks
constexpr std::int64_t kDynamicLeast = 8;  // runs per block: below that, the counter may cost more than it saves
constexpr std::int64_t kCoordinatesMost = std::int64_t{1} << 30;

/// The offsets of tiles' rows from a 16-byte boundary: begin, begin + grain, ...
struct Offsets {
  int begin, grain;
};
Offsets offsets_of(const TapGemm& gemm, const Stride1Shape& shape, const Stride1Tiling& tiling) {
  const std::int64_t bytes = shape.element_bytes;
  const std::int64_t grain = std::gcd(std::gcd(bytes * gemm.source_length, bytes * tiling.position_step), std::int64_t{16});
  const std::int64_t begin = shape.source_address + bytes * (tiling.position_begin + gemm.source_origin);
  return {static_cast<int>((begin % grain + grain) % grain), static_cast<int>(grain)};
}

Stride1Parity parity_of(const Offsets& offsets, int element_bytes) {
  if (offsets.grain % (2 * element_bytes) != 0) return Stride1Parity::mixed;
  return offsets.begin % (2 * element_bytes) == 0 ? Stride1Parity::even : Stride1Parity::odd;
}

bool has_whole_sectors(const TapGemm& gemm, int element_bytes) { return gemm.out_length * element_bytes % kSector == 0; }

/// Classes of output rows modulo a sector if they do not all begin at one; 0 if they cannot be stored through maps.
int store_classes_of(const TapGemm& gemm, const Stride1Shape& shape) {
  const bool in_pairs = gemm.out_length % 2 == 0 && shape.out_address % (2 * shape.element_bytes) == 0 &&
                        (gemm.out_origin + gemm.position_begin) % 2 == 0;
  const bool fits = std::max(gemm.out_length, gemm.N * gemm.G * gemm.out_channels) < kCoordinatesMost;
  // There is no such kernel for source rows that begin at odd and at even elements.
  const bool is_needed =
      shape.carry_columns != 0 && gemm.source_length % 2 == 0 && !has_whole_sectors(gemm, shape.element_bytes);
  if (!is_needed || gemm.columns % shape.columns != 0 || !in_pairs || !fits) return 0;
  return static_cast<int>(kSector / std::gcd(gemm.out_length * shape.element_bytes, std::int64_t{kSector}));
}

/// Sets the run length that gives the busiest block the least work, unless a row's runs and the blocks share a large divisor:
/// blocks would then work at the same places of row after row, which took half as long again. A run begins a sector before its
/// first own position, and a row's last tile reaches as far past its end.
void choose_run(const TapGemm& gemm, const Stride1Shape& shape, int sm_count, Stride1Tiling& tiling) {
  const std::int64_t tile = kCarryPositions, sector = kSector / shape.element_bytes;
  const std::int64_t weight_tiles = divide_up(gemm.columns, shape.columns) * gemm.G;
  const std::int64_t blocks = std::max<std::int64_t>(sm_count / weight_tiles, 1);
  tiling.aligned = static_cast<int>(sector);
  std::int64_t least = 0;
  // Moved back by a few positions, a tile's reads begin at a multiple of 16 bytes if all rows begin at the same offset.
  const std::int64_t first = shape.source_address + shape.element_bytes * (gemm.position_begin - sector + gemm.source_origin);
  const std::int64_t earlier = (first % 16 + 16) % 16 / shape.element_bytes / 2 * 2;
  const std::int64_t count = gemm.position_count + earlier + sector - 1;
  const auto runs_of = [&](std::int64_t run) { return divide_up(count, run * tile - sector); };
  for (int run = kPairs; run * tile * shape.element_bytes <= kBytesOfRun; run += kPairs) {
    const std::int64_t common = std::gcd(runs_of(run), blocks);
    const std::int64_t time = divide_up(gemm.N * runs_of(run), blocks) * run * (common > kCommonMost ? 3 : 2);
    if (least != 0 && time >= least) continue;
    least = time;
    tiling.run = run;
  }
  tiling.position_step = static_cast<int>(tiling.run * tile - sector);
  tiling.position_begin = gemm.position_begin - sector - earlier;
  tiling.position_tiles = runs_of(tiling.run);
  // Both consumers have the same number.
  const std::int64_t last = count + sector - (tiling.position_tiles - 1) * tiling.position_step;
  tiling.last_run = static_cast<int>(divide_up(divide_up(last, tile), kPairs) * kPairs);
}

/// Lets tiles overlap so that stored rows begin at a sector, unless they do anyway or it would cost an eighth of the products.
void choose_row_tiles(const TapGemm& gemm, const Stride1Shape& shape, int sm_count, Stride1Tiling& tiling) {
  const int positions = 64 * shape.halves;
  choose_tiles(gemm, positions, shape.element_bytes, false, tiling);
  tiling.run = 1;
  tiling.store_classes = store_classes_of(gemm, shape);
  if (tiling.store_classes != 0) return choose_run(gemm, shape, sm_count, tiling);
  if (shape.halves > 1 && !has_whole_sectors(gemm, shape.element_bytes)) {
    if (tiling.aligned == 1) return;
    // A whole sector, so that pairs of neighbours stay pairs.
    tiling.position_begin = gemm.position_begin - tiling.aligned;
    tiling.position_tiles = divide_up(gemm.position_count + tiling.aligned, tiling.position_step);
    return;
  }
  tiling.aligned = 1;
  tiling.position_step = positions;
  tiling.position_begin = gemm.position_begin;
  tiling.position_tiles = divide_up(gemm.position_count, positions);
}

}  // namespace

bool is_for_stride1(const TapGemm& gemm, int element_bytes) {
  if (gemm.source_stride != 1 || gemm.planes != 1 || gemm.tap_step != 1 || gemm.out_stride != 1) return false;
  return element_bytes == 4 || (gemm.source_length % 2 == 0 && gemm.out_length % 2 == 0);
}

Stride1Tiling make_stride1_tiling(const TapGemm& gemm, const Stride1Shape& shape, int sm_count, int shared_limit) {
  if (!is_for_stride1(gemm, shape.element_bytes) || (shape.parts == 2 && gemm.rows * gemm.taps > kLongestSplitSum)) return {};
  if (shape.element_bytes == 2 && shape.source_address % 4 != 0) return {};  // zeros outside the rows are written in words
  Stride1Tiling tiling{};
  tiling.columns = shape.columns;
  choose_row_tiles(gemm, shape, sm_count, tiling);
  if (shape.element_bytes == 2 && tiling.store_classes == 0 && !has_whole_sectors(gemm, shape.element_bytes)) return {};
  const std::int64_t first_out = gemm.out_origin + tiling.position_begin;
  tiling.stores_pairs = tiling.aligned == 1 && gemm.columns % shape.columns == 0 && gemm.out_length % 2 == 0 &&
                        shape.out_address % (2 * shape.element_bytes) == 0 && first_out % 2 == 0;
  tiling.rows = kStride1RowsOfStep;
  tiling.planes = tiling.plane_steps = 1;
  tiling.taps = static_cast<int>(gemm.taps);
  tiling.row_steps = tiling.count = static_cast<int>(divide_up(gemm.rows, kStride1RowsOfStep));
  tiling.span = 64 * shape.halves + tiling.taps - 1;
  tiling.weight_bytes = shape.parts * tiling.taps * (kStride1RowsOfStep / kVector) * shape.columns * 16;
  tiling.has_parts_together = true;  // both are columns of one product
  const Offsets offsets = offsets_of(gemm, shape, tiling);
  tiling.parity = parity_of(offsets, shape.element_bytes);
  const std::int64_t classes = 16 / std::gcd(gemm.source_length * shape.element_bytes, std::int64_t{16});
  const bool has_maps = std::max(gemm.source_length, gemm.N * gemm.G * gemm.rows) < kCoordinatesMost;
  tiling.classes = has_maps && classes <= kStride1ClassesMost ? static_cast<int>(classes) : 0;
  // A warp's reads are in different banks: every other row (with two classes every row) is an odd multiple of 32 bytes further
  // on. Whole pairs are read, the last of which may end after the span.
  const int unit = tiling.classes == 2 ? 32 : 16, row_bytes = (tiling.span + 1) * shape.element_bytes;
  tiling.pitch = static_cast<int>(divide_up(row_bytes + 16 - offsets.grain + offsets.begin, unit) | 1) * unit;
  tiling.stage_bytes = kStride1RowsOfStep * tiling.pitch;
  tiling.staging_bytes = tiling.store_classes != 0 ? shape.carry_bytes : shape.staging_bytes;
  tiling.store_columns = shape.carry_columns;
  const int fixed = kPairs * tiling.staging_bytes + shape.columns * rows_bias_bytes(shape.element_bytes) + kStride1BarrierBytes;
  const std::int64_t weights = std::int64_t{tiling.count} * tiling.weight_bytes;
  if (weights + fixed > shared_limit) return {};
  tiling.rings = takes_turns(shape.parts, shape.element_bytes) ? 1 : kPairs;
  std::int64_t stages = (shared_limit - fixed - weights) / tiling.rings / tiling.stage_bytes;
  if (shape.element_bytes == 4)
    stages = std::min<std::int64_t>(stages, kStride1TilesAhead * tiling.count * kPairs / tiling.rings);
  if (stages < 2) return {};
  tiling.stages = static_cast<int>(std::min<std::int64_t>(stages, kStagesMost * kPairs / tiling.rings));
  tiling.turn = tiling.count / 4;
  tiling.shared_bytes = static_cast<int>(fixed + weights + tiling.rings * tiling.stages * tiling.stage_bytes);
  if (!count_tiles(gemm, sm_count, tiling)) return {};
  // A block has whole runs.
  if (tiling.run > 1)
    tiling.grid =
        static_cast<unsigned>(std::min(sm_count / tiling.weight_tiles, gemm.N * tiling.position_tiles) * tiling.weight_tiles);
  const std::int64_t of_run = tiling.run > 1 ? 1 : kPairs;
  // In 16 bits rows have few runs, and the broadcast costs 3 percent (A forward 0.699 -> 0.720 ms).
  tiling.is_dynamic = shape.element_bytes == 4 && tiling.blocks >= kDynamicLeast * of_run * tiling.grid;
  return tiling;
}

}  // namespace polyphase::cuda::tensor_core
