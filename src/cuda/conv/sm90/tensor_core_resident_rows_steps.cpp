#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"

#include <algorithm>
#include <numeric>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8;                      // rows of an operand's 16 bytes
constexpr int kSector = 32;                     // bytes
constexpr std::int64_t kLongestSplitSum = 640;  // as in make_resident_steps
constexpr int kStagesMost = 8;
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

/// Where tiles of f32 overlap: classes of rows of the output modulo a sector; 0 where maps are no way to store them.
int store_classes_of(const TapGemm& form, const RowShape& shape, const RowSteps& steps) {
  const bool in_pairs =
      form.out_length % 2 == 0 && shape.out_address % 8 == 0 && (form.out_origin + steps.position_begin) % 2 == 0;
  const bool fits = std::max(form.out_length, form.N * form.G * form.out_channels) < kCoordinatesMost;
  if (shape.element_bytes != 4 || steps.aligned == 1 || form.columns % shape.columns != 0 || !in_pairs || !fits) return 0;
  return static_cast<int>(kSector / std::gcd(form.out_length * 4, std::int64_t{kSector}));
}

/// Tiles overlap so that stored rows begin at a sector, unless they do anyway, or that would cost an eighth of the products.
void choose_row_tiles(const TapGemm& form, const RowShape& shape, RowSteps& steps) {
  const int positions = 64 * shape.halves;
  choose_tiles(form, positions, shape.element_bytes, steps);
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
  return element_bytes == 4 || (form.source_length % 2 == 0 && has_whole_sectors(form, element_bytes));
}

RowSteps make_row_steps(const TapGemm& form, const RowShape& shape, int sm_count, int shared_limit) {
  if (!is_for_rows(form, shape.element_bytes) || (shape.parts == 2 && form.rows * form.taps > kLongestSplitSum)) return {};
  if (shape.element_bytes == 2 && shape.source_address % 4 != 0) return {};  // zeros outside the rows are written in words
  RowSteps steps{};
  steps.columns = shape.columns;
  choose_row_tiles(form, shape, steps);
  const std::int64_t first_out = form.out_origin + steps.position_begin;
  steps.stores_pairs = steps.aligned == 1 && form.columns % shape.columns == 0 && form.out_length % 2 == 0 &&
                       shape.out_address % (2 * shape.element_bytes) == 0 && first_out % 2 == 0;
  steps.rows = kRowsOfStep;
  steps.planes = steps.plane_steps = steps.tap_steps = 1;
  steps.taps = static_cast<int>(form.taps);
  steps.row_steps = steps.count = static_cast<int>(pieces(form.rows, kRowsOfStep));
  steps.span = 64 * shape.halves + steps.taps - 1;
  steps.weight_bytes = shape.parts * steps.taps * (kRowsOfStep / kVector) * shape.columns * 16;
  const Offsets offsets = offsets_of(form, shape, steps);
  steps.parity = parity_of(offsets, shape.element_bytes);
  steps.store_classes = steps.parity == RowParity::mixed ? 0 : store_classes_of(form, shape, steps);
  const std::int64_t classes = 16 / std::gcd(form.source_length * shape.element_bytes, std::int64_t{16});
  const bool has_maps = std::max(form.source_length, form.N * form.G * form.rows) < kCoordinatesMost;
  steps.classes = has_maps && classes <= kRowClassesMost ? static_cast<int>(classes) : 0;
  // What a warp reads lies in different banks: every other row an odd multiple of 32 bytes further, of two classes every row.
  // Whole pairs are read, the last of which may end behind the span.
  const int unit = steps.classes == 2 ? 32 : 16, row_bytes = (steps.span + 1) * shape.element_bytes;
  steps.pitch = static_cast<int>(pieces(row_bytes + 16 - offsets.grain + offsets.begin, unit) | 1) * unit;
  steps.stage_bytes = kRowsOfStep * steps.pitch;
  const int fixed = kPairs * shape.staging_bytes + shape.columns * 4 + kRowsBarrierBytes;
  const std::int64_t weights = std::int64_t{steps.count} * steps.weight_bytes;
  if (weights + fixed > shared_limit) return {};
  steps.rings = takes_turns(shape.parts, shape.element_bytes) ? 1 : kPairs;
  const std::int64_t stages = (shared_limit - fixed - weights) / steps.rings / steps.stage_bytes;
  if (stages < 2) return {};
  steps.stages = static_cast<int>(std::min<std::int64_t>(stages, kStagesMost * kPairs / steps.rings));
  steps.weight_buffers = steps.count;
  steps.resident = true;
  steps.turn = steps.count / 4;
  steps.shared_bytes = static_cast<int>(fixed + weights + steps.rings * steps.stages * steps.stage_bytes);
  return count_tiles(form, sm_count, steps) ? steps : RowSteps{};
}

}  // namespace polyphase::cuda::tensor_core
