#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"

#include <algorithm>
#include <numeric>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8;                      // rows of an operand's 16 bytes
constexpr int kSector = 32;                     // bytes
constexpr std::int64_t kLongestSplitSum = 640;  // as in make_resident_steps
constexpr int kStagesMost = 8;
constexpr int kBytesOfRun = 4096;        // of a row, at most: pieces of rows far apart at a time cost more than is saved
constexpr std::int64_t kCommonMost = 4;  // divisor of a row's runs and the blocks
constexpr std::int64_t kDrawnLeast = 8;  // runs of a block: below that, what the counter costs may be more than it saves
constexpr std::int64_t kCoordinatesMost = std::int64_t{1} << 30;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Where rows of tiles begin, in bytes behind a boundary of 16: begin, begin + grain, ...
struct Offsets {
  int begin, grain;
};
Offsets offsets_of(const TapGemm& form, const RowShape& shape, const RowSteps& steps) {
  const std::int64_t bytes = shape.element_bytes;
  const std::int64_t grain = std::gcd(std::gcd(bytes * form.source_length, bytes * steps.position_step), std::int64_t{16});
  const std::int64_t begin = shape.source_address + bytes * (steps.position_begin + form.source_origin);
  return {static_cast<int>((begin % grain + grain) % grain), static_cast<int>(grain)};
}

RowParity parity_of(const Offsets& offsets, int element_bytes) {
  if (offsets.grain % (2 * element_bytes) != 0) return RowParity::mixed;
  return offsets.begin % (2 * element_bytes) == 0 ? RowParity::even : RowParity::odd;
}

bool has_whole_sectors(const TapGemm& form, int element_bytes) { return form.out_length * element_bytes % kSector == 0; }

/// Classes of rows of the output modulo a sector, where they do not all begin at one; 0 where maps are no way to store them.
int store_classes_of(const TapGemm& form, const RowShape& shape) {
  const bool in_pairs = form.out_length % 2 == 0 && shape.out_address % (2 * shape.element_bytes) == 0 &&
                        (form.out_origin + form.position_begin) % 2 == 0;
  const bool fits = std::max(form.out_length, form.N * form.G * form.out_channels) < kCoordinatesMost;
  // Rows of the source that begin at odd and even elements have no such kernel.
  const bool is_needed =
      shape.carry_columns != 0 && form.source_length % 2 == 0 && !has_whole_sectors(form, shape.element_bytes);
  if (!is_needed || form.columns % shape.columns != 0 || !in_pairs || !fits) return 0;
  return static_cast<int>(kSector / std::gcd(form.out_length * shape.element_bytes, std::int64_t{kSector}));
}

/// Runs of so many tiles that the blocks have the least to do one after another; not where a row's runs and the blocks share a
/// large divisor, so that blocks would work at the same places of row after row: that took half as long again. A run begins a
/// sector before its first own position, and a row's last tile reaches as far behind its end.
void choose_run(const TapGemm& form, const RowShape& shape, int sm_count, RowSteps& steps) {
  const std::int64_t tile = kCarryPositions, sector = kSector / shape.element_bytes;
  const std::int64_t weight_tiles = pieces(form.columns, shape.columns) * form.G;
  const std::int64_t blocks = std::max<std::int64_t>(sm_count / weight_tiles, 1);
  steps.aligned = static_cast<int>(sector);
  std::int64_t least = 0;
  // A few positions earlier, what a tile reads begins at a multiple of 16 bytes, if all rows begin alike.
  const std::int64_t first = shape.source_address + shape.element_bytes * (form.position_begin - sector + form.source_origin);
  const std::int64_t earlier = (first % 16 + 16) % 16 / shape.element_bytes / 2 * 2;
  const std::int64_t count = form.position_count + earlier + sector - 1;
  const auto runs_of = [&](std::int64_t run) { return pieces(count, run * tile - sector); };
  for (int run = kPairs; run * tile * shape.element_bytes <= kBytesOfRun; run += kPairs) {
    const std::int64_t common = std::gcd(runs_of(run), blocks);
    const std::int64_t time = pieces(form.N * runs_of(run), blocks) * run * (common > kCommonMost ? 3 : 2);
    if (least != 0 && time >= least) continue;
    least = time;
    steps.run = run;
  }
  steps.position_step = static_cast<int>(steps.run * tile - sector);
  steps.position_begin = form.position_begin - sector - earlier;
  steps.position_tiles = runs_of(steps.run);
  // Both consumers have as many.
  const std::int64_t last = count + sector - (steps.position_tiles - 1) * steps.position_step;
  steps.last_run = static_cast<int>(pieces(pieces(last, tile), kPairs) * kPairs);
}

/// Tiles overlap so that stored rows begin at a sector, unless they do anyway, or that would cost an eighth of the products.
void choose_row_tiles(const TapGemm& form, const RowShape& shape, int sm_count, RowSteps& steps) {
  const int positions = 64 * shape.halves;
  choose_tiles(form, positions, shape.element_bytes, false, steps);
  steps.run = 1;
  steps.store_classes = store_classes_of(form, shape);
  if (steps.store_classes != 0) return choose_run(form, shape, sm_count, steps);
  if (shape.halves > 1 && !has_whole_sectors(form, shape.element_bytes)) {
    if (steps.aligned == 1) return;
    // A whole sector, so that pairs of neighbours stay pairs.
    steps.position_begin = form.position_begin - steps.aligned;
    steps.position_tiles = pieces(form.position_count + steps.aligned, steps.position_step);
    return;
  }
  steps.aligned = 1;
  steps.position_step = positions;
  steps.position_begin = form.position_begin;
  steps.position_tiles = pieces(form.position_count, positions);
}

}  // namespace

bool is_for_rows(const TapGemm& form, int element_bytes) {
  if (form.source_stride != 1 || form.planes != 1 || form.tap_step != 1 || form.out_stride != 1) return false;
  return element_bytes == 4 || (form.source_length % 2 == 0 && form.out_length % 2 == 0);
}

RowSteps make_row_steps(const TapGemm& form, const RowShape& shape, int sm_count, int shared_limit) {
  if (!is_for_rows(form, shape.element_bytes) || (shape.parts == 2 && form.rows * form.taps > kLongestSplitSum)) return {};
  if (shape.element_bytes == 2 && shape.source_address % 4 != 0) return {};  // zeros outside the rows are written in words
  RowSteps steps{};
  steps.columns = shape.columns;
  choose_row_tiles(form, shape, sm_count, steps);
  if (shape.element_bytes == 2 && steps.store_classes == 0 && !has_whole_sectors(form, shape.element_bytes)) return {};
  const std::int64_t first_out = form.out_origin + steps.position_begin;
  steps.stores_pairs = steps.aligned == 1 && form.columns % shape.columns == 0 && form.out_length % 2 == 0 &&
                       shape.out_address % (2 * shape.element_bytes) == 0 && first_out % 2 == 0;
  steps.rows = kRowsOfStep;
  steps.planes = steps.plane_steps = steps.tap_steps = 1;
  steps.taps = static_cast<int>(form.taps);
  steps.row_steps = steps.count = static_cast<int>(pieces(form.rows, kRowsOfStep));
  steps.span = 64 * shape.halves + steps.taps - 1;
  steps.weight_bytes = shape.parts * steps.taps * (kRowsOfStep / kVector) * shape.columns * 16;
  steps.has_parts_together = true;  // both are columns of one product
  const Offsets offsets = offsets_of(form, shape, steps);
  steps.parity = parity_of(offsets, shape.element_bytes);
  const std::int64_t classes = 16 / std::gcd(form.source_length * shape.element_bytes, std::int64_t{16});
  const bool has_maps = std::max(form.source_length, form.N * form.G * form.rows) < kCoordinatesMost;
  steps.classes = has_maps && classes <= kRowClassesMost ? static_cast<int>(classes) : 0;
  // What a warp reads lies in different banks: every other row an odd multiple of 32 bytes further, of two classes every row.
  // Whole pairs are read, the last of which may end behind the span.
  const int unit = steps.classes == 2 ? 32 : 16, row_bytes = (steps.span + 1) * shape.element_bytes;
  steps.pitch = static_cast<int>(pieces(row_bytes + 16 - offsets.grain + offsets.begin, unit) | 1) * unit;
  steps.stage_bytes = kRowsOfStep * steps.pitch;
  steps.staging_bytes = steps.store_classes != 0 ? shape.carry_bytes : shape.staging_bytes;
  steps.store_columns = shape.carry_columns;
  const int fixed = kPairs * steps.staging_bytes + shape.columns * rows_bias_bytes(shape.element_bytes) + kRowsBarrierBytes;
  const std::int64_t weights = std::int64_t{steps.count} * steps.weight_bytes;
  if (weights + fixed > shared_limit) return {};
  steps.rings = takes_turns(shape.parts, shape.element_bytes) ? 1 : kPairs;
  std::int64_t stages = (shared_limit - fixed - weights) / steps.rings / steps.stage_bytes;
  if (shape.element_bytes == 4) stages = std::min<std::int64_t>(stages, kRowTilesAhead * steps.count * kPairs / steps.rings);
  if (stages < 2) return {};
  steps.stages = static_cast<int>(std::min<std::int64_t>(stages, kStagesMost * kPairs / steps.rings));
  steps.weight_buffers = steps.count;
  steps.resident = true;
  steps.turn = steps.count / 4;
  steps.shared_bytes = static_cast<int>(fixed + weights + steps.rings * steps.stages * steps.stage_bytes);
  if (!count_tiles(form, sm_count, steps)) return {};
  // A block has whole runs.
  if (steps.run > 1)
    steps.grid =
        static_cast<unsigned>(std::min(sm_count / steps.weight_tiles, form.N * steps.position_tiles) * steps.weight_tiles);
  const std::int64_t of_run = steps.run > 1 ? 1 : kPairs;
  // In 16 bits runs of a row are few, and being told of them costs 3 percent (A forward 0.699 -> 0.720 ms).
  steps.is_drawn = shape.element_bytes == 4 && steps.blocks >= kDrawnLeast * of_run * steps.grid;
  return steps;
}

}  // namespace polyphase::cuda::tensor_core
