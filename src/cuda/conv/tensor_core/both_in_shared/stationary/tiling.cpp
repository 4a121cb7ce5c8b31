#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

#include <algorithm>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8, kDepth = 16;  // rows of an operand's 16 bytes, of one wgmma
constexpr int kThreads = 128;            // that convert
constexpr int kLongestRowWindow = 8192;
// Sums of two parts are not added up in between: at this many products the tensor cores' cutting off is still below twice the
// rounding of plain f32 sums.
constexpr std::int64_t kLongestSplitSum = 640;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Whether two neighbours of 16 bits are converted at a time.
void choose_pairs(const TapGemm& form, const ResidentShape& shape, ResidentSteps& steps) {
  steps.is_paired = shape.element_bytes == 2 && shape.positions == 256 && shape.is_word_aligned && form.planes == 1 &&
                    form.source_stride == 1 && form.source_length % 2 == 0 && steps.position_step % 2 == 0;
  steps.shift = steps.is_paired ? static_cast<int>((steps.position_begin + form.source_origin) & 1) : 0;
}

/// Sizes of a step of `rows` x `planes` x all taps.
void measure(const TapGemm& form, const ResidentShape& shape, int rows, int planes, ResidentSteps& steps) {
  steps.rows = rows;
  steps.planes = planes;
  steps.taps = static_cast<int>(form.taps);
  steps.row_steps = static_cast<int>(pieces(form.rows, rows));
  steps.plane_steps = static_cast<int>(pieces(form.planes, planes));
  steps.tap_steps = 1;
  steps.count = steps.row_steps * steps.plane_steps;
  const int grain = steps.is_paired ? 2 : 1;
  const auto window = static_cast<int>(pieces(shape.positions + (form.taps - 1) * form.tap_step + steps.shift, grain) * grain);
  steps.tile = make_tile(form.source_length, form.source_stride, form.source_plane_step, rows, planes, window, kVector);
  steps.source_bytes = shape.parts * steps.tile.items * 16;
  steps.weight_bytes = shape.parts * steps.taps * planes * (rows / kVector) * kResidentColumns * 16;
  const std::int64_t span = form.source_stride * (window - 1) + (planes - 1) * form.source_plane_step + 1;
  steps.raw_pitch = static_cast<int>(pieces(span * shape.element_bytes + 15, 16) * 16);
  steps.raw_bytes = rows * steps.raw_pitch;
}

/// Divides `available` bytes among the weights and the pairs' rings. False where fewer than `least` stages of rows are left.
bool divide_memory(int available, int least, ResidentSteps& steps) {
  const std::int64_t weights = static_cast<std::int64_t>(steps.count) * steps.weight_bytes;
  const std::int64_t each = (available - weights) / kPairs;
  steps.stages = each - std::int64_t{4} * steps.raw_bytes >= std::int64_t{kResidentStagesMost} * steps.source_bytes
                     ? kResidentStagesMost
                     : 2;
  const std::int64_t left = each - static_cast<std::int64_t>(steps.stages) * steps.source_bytes;
  if (weights > available || left < static_cast<std::int64_t>(least) * steps.raw_bytes) return false;
  steps.raw_stages = static_cast<int>(std::min<std::int64_t>(6, left / steps.raw_bytes));
  steps.weight_buffers = steps.count;
  steps.resident = true;
  return true;
}

/// The wgmmas of a step, in the order of packed weights: [tap][plane][part][block of rows].
bool list_products(const TapGemm& form, const ResidentShape& shape, ResidentSteps& steps) {
  const int groups = steps.rows / kDepth, blocks = steps.rows / kVector;
  if (steps.taps * steps.planes * groups > kProductsMost) return false;
  int count = 0;
  for (int tap = 0; tap < steps.taps; ++tap) {
    for (int plane = 0; plane < steps.planes; ++plane) {
      for (int group = 0; group < groups; ++group) {
        const int weights = (tap * steps.planes + plane) * shape.parts * blocks + group * (kDepth / kVector);
        const std::int64_t source = static_cast<std::int64_t>(plane * blocks + group * (kDepth / kVector)) * steps.tile.window +
                                    tap * form.tap_step + steps.shift;
        steps.products[count++] = {static_cast<std::uint32_t>(weights) * kResidentColumns, static_cast<std::uint32_t>(source)};
      }
    }
  }
  steps.product_count = count;
  return true;
}

/// Rows that are whole sectors need no overlap, if tiles begin at one. False where they are not, or no tile can.
bool choose_whole_sectors(const TapGemm& form, StoredSteps& steps) {
  if (form.out_length % steps.aligned != 0) return false;
  for (int before = 0; before < steps.aligned; ++before) {
    const std::int64_t begin = form.position_begin - before;
    if ((form.out_stride * begin + form.out_origin) % steps.aligned != 0) continue;
    steps.position_begin = begin;
    steps.position_step = steps.positions;
    steps.position_tiles = pieces(form.position_count + before, steps.positions);
    return true;
  }
  return false;
}

void set_advances(const ResidentShape& shape, ResidentSteps& steps) {
  const Tile& tile = steps.tile;
  const int width = steps.is_paired ? 2 : 1, plane_bytes = (steps.rows / kVector) * tile.window * 16;
  steps.next_plane = kThreads % steps.planes;
  steps.next_position = kThreads / steps.planes;
  steps.next_from = (steps.next_position * width * tile.stride + steps.next_plane * tile.plane_step) * shape.element_bytes;
  steps.next_to = steps.next_plane * plane_bytes + steps.next_position * width * 16;
  steps.wrap_from = (tile.stride - steps.planes * tile.plane_step) * shape.element_bytes;
  steps.wrap_to = 16 - steps.planes * plane_bytes;
  steps.block_from = kVector * steps.raw_pitch - tile.window * tile.stride * shape.element_bytes;
}

}  // namespace

void choose_tiles(const TapGemm& form, int positions, int element_bytes, bool is_sector_aligned, StoredSteps& steps) {
  steps.positions = positions;
  const bool is_dense = form.out_stride == 1 || form.phase_classes == 1 || form.out_class_step == 1;
  steps.aligned = is_dense ? 32 / element_bytes : 1;
  if (is_dense && is_sector_aligned && choose_whole_sectors(form, steps)) return;
  auto overlap = static_cast<int>(pieces(steps.aligned - 1, form.out_stride));
  int step = positions - overlap;
  while (step > 0 && step * form.out_stride % steps.aligned != 0) --step;
  if (step * 8 < positions * 7) {
    step = positions;
    steps.aligned = 1;
    overlap = 0;
  }
  steps.position_step = step;
  steps.position_begin = form.position_begin - overlap;
  steps.position_tiles = pieces(form.position_count + overlap, step);
}

bool count_tiles(const TapGemm& form, int sm_count, StoredSteps& steps) {
  const std::int64_t column_tiles = pieces(form.columns, steps.columns), weight_tiles = column_tiles * form.G;
  const std::int64_t above = form.N * steps.position_tiles;
  if (weight_tiles > sm_count || above * weight_tiles > 0x7fffffff) return false;
  steps.weight_tiles = weight_tiles;
  steps.blocks = above * weight_tiles;
  steps.grid = static_cast<unsigned>(std::min<std::int64_t>(sm_count / weight_tiles, pieces(above, kPairs)) * weight_tiles);
  steps.by_weight_tiles = FastDivide(static_cast<std::uint32_t>(weight_tiles));
  steps.by_position_tiles = FastDivide(static_cast<std::uint32_t>(steps.position_tiles));
  steps.by_column_tiles = FastDivide(static_cast<std::uint32_t>(column_tiles));
  steps.by_classes = FastDivide(static_cast<std::uint32_t>(form.classes));
  steps.by_gcd = FastDivide(static_cast<std::uint32_t>(form.out_gcd));
  steps.by_stride = FastDivide(static_cast<std::uint32_t>(form.out_stride));
  return true;
}

ResidentSteps make_resident_steps(const TapGemm& form, const ResidentShape& shape, int sm_count, int shared_limit) {
  const std::int64_t products = form.rows * form.planes * form.taps;
  const std::int64_t span =
      form.source_stride * (shape.positions + (form.taps - 1) * form.tap_step) + form.planes * form.source_plane_step;
  if (span > kLongestRowWindow || (shape.parts == 2 && products > kLongestSplitSum)) return {};
  const int staged_bytes = shape.element_bytes;
  const int wrong_bytes = shape.element_bytes == 4 ? kPairWrongBytes : 0;
  const int fixed = 128 + kPairs * (pair_staging_bytes(shape.positions, staged_bytes) + kPairBarrierBytes + wrong_bytes) + 64;
  ResidentSteps steps{};
  steps.columns = kResidentColumns;
  choose_tiles(form, shape.positions, shape.element_bytes, shape.is_sector_aligned, steps);
  choose_pairs(form, shape, steps);
  if (shape.element_bytes == 2 && shape.positions == 256 && !steps.is_paired) return {};  // there is no such kernel
  bool found = false;
  // Long steps for elements of 16 bits, whose conversion is short beside what every step costs.
  const bool is_short = shape.element_bytes == 2;
  // All planes of a row at once, if need be with less of the source under way: planes apart are copied as often as there are
  // steps of them.
  for (auto planes = static_cast<int>(form.planes); planes >= 1 && !found; planes = planes == 1 ? 0 : (planes + 1) / 2) {
    for (const int least : {is_short ? 2 : 3, 2}) {
      for (int rows = (is_short ? 4 : 2) * kDepth; rows >= kDepth && !found; rows /= 2) {
        if (rows > kDepth && rows / 2 >= form.rows) continue;
        measure(form, shape, rows, planes, steps);
        found = divide_memory(shared_limit - fixed, least, steps) && list_products(form, shape, steps);
      }
    }
  }
  if (!found || !count_tiles(form, sm_count, steps)) return {};
  set_advances(shape, steps);
  // f32 of one part is quicker without: its stores are no longer than its products.
  steps.turn_step = shape.parts == 1 && shape.element_bytes == 4 ? -1 : (steps.count - 1) / 2;
  steps.shared_bytes = fixed + steps.weight_buffers * steps.weight_bytes +
                       kPairs * (steps.stages * steps.source_bytes + steps.raw_stages * steps.raw_bytes);
  return steps;
}

}  // namespace polyphase::cuda::tensor_core
