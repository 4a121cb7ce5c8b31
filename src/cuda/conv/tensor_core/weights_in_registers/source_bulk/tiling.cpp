#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"

#include <algorithm>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8;                            // rows of an operand's 16 bytes
constexpr int kColumns = 64;                          // gemm_m
constexpr int kFixedBytes = 128 + kNarrowFixedBytes;  // alignment
constexpr int kLeastUnderWay = 48 * 1024;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Sizes of a tile. False where its depths are too many.
bool measure(const TapGemm& form, const NarrowShape& shape, NarrowSteps& steps) {
  const std::int64_t rows = pieces(form.rows, kNarrowRows) * kNarrowRows, depths = rows / kNarrowRows * form.planes * form.taps;
  steps.is_stacked = shape.parts == 2 && form.columns <= kColumns / 2;
  if (depths * (shape.parts == 2 && !steps.is_stacked ? 2 : 1) > kNarrowDepthsMost) return false;
  const std::int64_t halo = (form.taps - 1) * form.tap_step;
  const std::int64_t span = form.source_stride * (kNarrowPositions + halo - 1) + (form.planes - 1) * form.source_plane_step + 1;
  if (span > 8192) return false;
  steps.depths = static_cast<int>(depths);
  steps.rows = static_cast<int>(rows);
  steps.planes = static_cast<int>(form.planes);
  steps.taps = static_cast<int>(form.taps);
  steps.row_steps = steps.plane_steps = steps.tap_steps = steps.count = 1;
  steps.weight_buffers = 1;
  steps.resident = true;
  steps.halo = static_cast<int>(halo);
  steps.tile = make_tile(form.source_length, form.source_stride, form.source_plane_step, steps.rows, steps.planes,
                         kNarrowPositions + steps.halo, kVector);
  steps.source_bytes = static_cast<int>(pieces(shape.parts * steps.tile.items * 16, 128) * 128);
  steps.raw_pitch = static_cast<int>(pieces(span * shape.element_bytes + 15, 16) * 16);
  steps.raw_bytes = kNarrowRows * steps.raw_pitch;
  return true;
}

/// Whether rows are staged by vectors of four elements, of which four lanes have at most as many as they have pairs of sums.
bool choose_spread(const TapGemm& form, const NarrowShape& shape, NarrowSteps& steps) {
  if (steps.is_stacked || form.out_stride != 2 || form.classes != 1 || steps.depths > kSpreadDepths) return false;
  steps.is_spread = steps.stores_bulk = true;
  // Half a turn of the banks from row to row: no two of the rows that lanes write together meet.
  steps.out_pitch = 2 * kNarrowPositions + 64 / shape.element_bytes;
  steps.staging_bytes = 4 * kSpreadRows * steps.out_pitch * shape.element_bytes;
  return true;
}

/// Columns of a tile are whole channels; how they are staged. False where rows cannot be staged whole.
bool choose_columns(const TapGemm& form, const NarrowShape& shape, NarrowSteps& steps) {
  const std::int64_t most = steps.is_stacked ? kColumns / 2 : kColumns;
  if (form.classes > most) return false;
  steps.channels = static_cast<int>(std::min(most / form.classes, form.out_channels));
  steps.columns = static_cast<int>(steps.channels * form.classes);
  steps.is_by_warps = (most / 4) % form.classes == 0;
  if (steps.is_by_warps) {
    steps.columns = static_cast<int>(most);
    steps.channels = static_cast<int>(most / form.classes);
  }
  steps.weight_bytes = shape.parts * steps.taps * steps.planes * (steps.rows / kVector) * steps.columns * 16;
  if (choose_spread(form, shape, steps)) return true;
  // Eight words beyond a multiple of 32 where rows are read in pairs of words, four where they are not: no conflicts of banks.
  const std::int64_t words = form.out_stride * kNarrowPositions * shape.element_bytes / 4 + (form.out_stride == 1 ? 8 : 4);
  const std::int64_t pitch = pieces(words, 4) * 4 * 4 / shape.element_bytes;
  const std::int64_t bytes = steps.channels * pitch * shape.element_bytes;
  if (bytes > 80 * 1024) return false;
  // A bulk copy costs its warp some hundred cycles a row, but no instructions: threads store rows themselves where little is
  // read and converted beside them.
  steps.stores_bulk = shape.element_bytes == 2 || form.out_stride > 1 || form.rows * form.source_stride > form.out_channels;
  steps.out_pitch = static_cast<int>(pitch);
  steps.staging_bytes = static_cast<int>(pieces(bytes, 128) * 128);
  return true;
}

bool divide_memory(int shared_limit, NarrowSteps& steps) {
  const int available = shared_limit - kFixedBytes - kPairs * steps.staging_bytes;
  const auto left = [&](int stages) { return available - stages * steps.source_bytes; };
  steps.stages = 2;
  const int least = std::max({kLeastUnderWay, 3 * steps.raw_bytes, steps.rows / kNarrowRows * steps.raw_bytes});
  while (steps.stages < 4 && left(steps.stages + 1) >= least) ++steps.stages;
  if (left(steps.stages) < 3 * steps.raw_bytes) return false;
  steps.raw_stages = std::min(kNarrowRingMost, left(steps.stages) / steps.raw_bytes);
  steps.shared_bytes =
      kFixedBytes + kPairs * steps.staging_bytes + steps.stages * steps.source_bytes + steps.raw_stages * steps.raw_bytes;
  return true;
}

/// In the order of packed weights, [tap][plane][part][block of rows].
void list_products(const TapGemm& form, const NarrowShape& shape, NarrowSteps& steps) {
  const int groups = steps.rows / kNarrowRows, blocks = steps.rows / kVector;
  int count = 0;
  for (int tap = 0; tap < steps.taps; ++tap) {
    for (int plane = 0; plane < steps.planes; ++plane) {
      for (int group = 0; group < groups; ++group) {
        const int weights = ((tap * steps.planes + plane) * shape.parts * blocks + 2 * group) * steps.columns;
        const std::int64_t source = (plane * blocks + 2 * group) * steps.tile.window + tap * form.tap_step;
        steps.products[count++] = {static_cast<std::uint32_t>(weights), static_cast<std::uint32_t>(source)};
      }
    }
  }
}

}  // namespace

NarrowSteps make_narrow_steps(const TapGemm& form, const NarrowShape& shape, int sm_count, int shared_limit) {
  NarrowSteps steps{};
  choose_tiles(form, kNarrowPositions, shape.element_bytes, shape.is_sector_aligned, steps);
  if (steps.aligned == 1) return {};
  if (!measure(form, shape, steps) || !choose_columns(form, shape, steps) || !divide_memory(shared_limit, steps)) return {};
  if (!count_tiles(form, sm_count, steps)) return {};
  steps.is_drawn = writes_more(form);
  list_products(form, shape, steps);
  return steps;
}

}  // namespace polyphase::cuda::tensor_core
