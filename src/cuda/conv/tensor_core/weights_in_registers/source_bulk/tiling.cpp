#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"

#include <algorithm>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8;                          // rows in an operand's 16 bytes
constexpr int kColumns = 64;                        // gemm_m
constexpr int kFixedBytes = 128 + kBulkFixedBytes;  // alignment
constexpr int kLeastUnderWay = 48 * 1024;

/// The sizes of a tile. False if it has too many depths.
bool measure(const TapGemm& gemm, const BulkShape& shape, BulkTiling& tiling) {
  const std::int64_t rows = divide_up(gemm.rows, kBulkRows) * kBulkRows, depths = rows / kBulkRows * gemm.planes * gemm.taps;
  tiling.is_stacked = shape.parts == 2 && gemm.columns <= kColumns / 2;
  if (depths * (shape.parts == 2 && !tiling.is_stacked ? 2 : 1) > kBulkDepthsMost) return false;
  if (shape.parts == 2 && depths > kChainMost) return false;
  const std::int64_t halo = (gemm.taps - 1) * gemm.tap_step;
  const std::int64_t span = gemm.source_stride * (kBulkPositions + halo - 1) + (gemm.planes - 1) * gemm.source_plane_step + 1;
  if (span > 8192) return false;
  tiling.depths = static_cast<int>(depths);
  tiling.rows = static_cast<int>(rows);
  tiling.planes = static_cast<int>(gemm.planes);
  tiling.taps = static_cast<int>(gemm.taps);
  tiling.row_steps = tiling.plane_steps = tiling.count = 1;
  tiling.halo = static_cast<int>(halo);
  tiling.tile = make_tile(gemm.source_length, gemm.source_stride, gemm.source_plane_step, tiling.rows, tiling.planes,
                          kBulkPositions + tiling.halo, kVector);
  tiling.source_bytes = static_cast<int>(divide_up(shape.parts * tiling.tile.items * 16, 128) * 128);
  tiling.raw_pitch = static_cast<int>(divide_up(span * shape.element_bytes + 15, 16) * 16);
  tiling.raw_bytes = kBulkRows * tiling.raw_pitch;
  return true;
}

/// Whether rows are staged in vectors of four elements; four lanes have at most as many of them as they have pairs of sums.
bool choose_spread(const TapGemm& gemm, const BulkShape& shape, BulkTiling& tiling) {
  if (tiling.is_stacked || gemm.out_stride != 2 || gemm.classes != 1 || tiling.depths > kSpreadDepths) return false;
  tiling.is_spread = tiling.stores_bulk = true;
  // Half of the banks from row to row, so that rows that lanes write together do not conflict.
  tiling.out_pitch = 2 * kBulkPositions + 64 / shape.element_bytes;
  tiling.staging_bytes = 4 * kSpreadRows * tiling.out_pitch * shape.element_bytes;
  return true;
}

/// The columns of a tile are whole channels; how they are staged. False if rows cannot be staged whole.
bool choose_columns(const TapGemm& gemm, const BulkShape& shape, BulkTiling& tiling) {
  const std::int64_t most = tiling.is_stacked ? kColumns / 2 : kColumns;
  if (gemm.classes > most) return false;
  tiling.channels = static_cast<int>(std::min(most / gemm.classes, gemm.out_channels));
  tiling.columns = static_cast<int>(tiling.channels * gemm.classes);
  tiling.is_by_warps = (most / 4) % gemm.classes == 0;
  if (tiling.is_by_warps) {
    tiling.columns = static_cast<int>(most);
    tiling.channels = static_cast<int>(most / gemm.classes);
  }
  tiling.weight_bytes = shape.parts * tiling.taps * tiling.planes * (tiling.rows / kVector) * tiling.columns * 16;
  if (choose_spread(gemm, shape, tiling)) return true;
  // Eight words past a multiple of 32 if rows are read in pairs of words, else four: no bank conflicts.
  const std::int64_t words = gemm.out_stride * kBulkPositions * shape.element_bytes / 4 + (gemm.out_stride == 1 ? 8 : 4);
  const std::int64_t pitch = divide_up(words, 4) * 4 * 4 / shape.element_bytes;
  const std::int64_t bytes = tiling.channels * pitch * shape.element_bytes;
  if (bytes > 80 * 1024) return false;
  // A bulk copy costs its warp about a hundred cycles per row, but no instructions. Threads store rows themselves if little is
  // read and converted meanwhile.
  tiling.stores_bulk = shape.element_bytes == 2 || gemm.out_stride > 1 || gemm.rows * gemm.source_stride > gemm.out_channels;
  tiling.out_pitch = static_cast<int>(pitch);
  tiling.staging_bytes = static_cast<int>(divide_up(bytes, 128) * 128);
  return true;
}

bool divide_memory(int shared_limit, BulkTiling& tiling) {
  const int available = shared_limit - kFixedBytes - kPairs * tiling.staging_bytes;
  const auto left = [&](int stages) { return available - stages * tiling.source_bytes; };
  tiling.stages = 2;
  const int least = std::max({kLeastUnderWay, 3 * tiling.raw_bytes, tiling.rows / kBulkRows * tiling.raw_bytes});
  while (tiling.stages < 4 && left(tiling.stages + 1) >= least) ++tiling.stages;
  if (left(tiling.stages) < 3 * tiling.raw_bytes) return false;
  tiling.raw_stages = std::min(kBulkRingMost, left(tiling.stages) / tiling.raw_bytes);
  tiling.shared_bytes =
      kFixedBytes + kPairs * tiling.staging_bytes + tiling.stages * tiling.source_bytes + tiling.raw_stages * tiling.raw_bytes;
  return true;
}

/// The products in the order of packed weights, [tap][plane][part][block of rows].
void list_products(const TapGemm& gemm, const BulkShape& shape, BulkTiling& tiling) {
  const int groups = tiling.rows / kBulkRows, blocks = tiling.rows / kVector;
  int count = 0;
  for (int tap = 0; tap < tiling.taps; ++tap) {
    for (int plane = 0; plane < tiling.planes; ++plane) {
      for (int group = 0; group < groups; ++group) {
        const int weights = ((tap * tiling.planes + plane) * shape.parts * blocks + 2 * group) * tiling.columns;
        const std::int64_t source = (plane * blocks + 2 * group) * tiling.tile.window + tap * gemm.tap_step;
        tiling.products[count++] = {static_cast<std::uint32_t>(weights), static_cast<std::uint32_t>(source)};
      }
    }
  }
}

}  // namespace

BulkTiling make_bulk_tiling(const TapGemm& gemm, const BulkShape& shape, int sm_count, int shared_limit) {
  BulkTiling tiling{};
  choose_tiles(gemm, kBulkPositions, shape.element_bytes, shape.is_sector_aligned, tiling);
  if (tiling.aligned == 1) return {};
  if (!measure(gemm, shape, tiling) || !choose_columns(gemm, shape, tiling) || !divide_memory(shared_limit, tiling)) return {};
  if (!count_tiles(gemm, sm_count, tiling)) return {};
  tiling.is_dynamic = writes_more(gemm);
  list_products(gemm, shape, tiling);
  return tiling;
}

}  // namespace polyphase::cuda::tensor_core
