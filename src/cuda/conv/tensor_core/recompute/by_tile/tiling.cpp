#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"

#include <algorithm>

#include "cuda/conv/rounding.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/work.cuh"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kConvertedBytes = std::int64_t{48} << 20;  // of converted units; those of form f16 need half of it
constexpr std::int64_t kCountMost = 0x40000000;                   // limit for numbers divided by FastDivide

}  // namespace

std::optional<ByTileTiling> make_by_tile_tiling(const TapGemm& gemm, int parts, int sm_count, int shared_limit,
                                                std::int64_t most_bytes) {
  ByTileTiling tiling{};
  tiling.along_positions = gemm.columns <= kPreconvertedSubtile;
  const PreconvertedShape shape{kWidePositions, tiling.along_positions, parts, 1};
  PreconvertedTiling& steps = tiling.steps;
  constexpr int kSaved = 4 * kPreconvertedGroups * preconverted_staging_of_warp(kPreconvertedStagedBytes) - kByTileStaging;
  const auto with_stages = [&](int stages) {
    return make_preconverted_tiling(gemm, shape, 1, sm_count, shared_limit - kByTileSharedBytes + kSaved, stages);
  };
  steps = with_stages(3);
  if (steps.count == 0) return {};
  // Each step of taps copies the source again. Where that is more than the weights, rather two stages of all taps.
  if (steps.tap_steps > 1 && steps.source_bytes > steps.weight_bytes)
    if (const PreconvertedTiling two = with_stages(2); two.tap_steps * two.plane_steps == 1) steps = two;
  tiling.shared_bytes = steps.shared_bytes - kSaved;
  tiling.unit_positions = steps.tile_positions;
  tiling.units_of_sample = divide_up(gemm.position_count, tiling.unit_positions);
  tiling.units = gemm.N * gemm.G * tiling.units_of_sample;
  if (tiling.units == 0) return {};
  // Samples begin at whole units, and none of their positions is left out.
  SourceLayout& source = steps.source;
  source.position_begin = gemm.position_begin;
  source.sample_pitch = tiling.units_of_sample * tiling.unit_positions;
  steps.sample_positions = gemm.position_count;
  if (gemm.N * source.sample_pitch >= kCountMost || tiling.units * steps.column_tiles >= kCountMost) return {};
  source.by_sample = FastDivide(static_cast<std::uint32_t>(source.sample_pitch));
  steps.whole_vectors = false;
  const std::int64_t step_bytes = source.planes * parts * kPreconvertedBlocks * source.tile_places * 16;
  for (int form = 0; form < kForms; ++form) {
    tiling.row_steps[form] = static_cast<int>(divide_up(gemm.rows, rows_of_step(form)));
    tiling.counts[form] = tiling.row_steps[form] * steps.plane_steps * steps.tap_steps;
    tiling.half_bytes[form] = tiling.row_steps[form] * step_bytes;
    tiling.weight_bytes[form] =
        gemm.G * steps.column_tiles * tiling.counts[form] * static_cast<std::int64_t>(steps.weight_bytes);
  }
  tiling.unit_bytes = tiling.half_bytes[kFormTf32] * (tiling.along_positions ? kPreconvertedGroups : 1);
  // A multiprocessor multiplies a tile, has taken the next one, and converts two units meanwhile. With fewer places it would
  // wait.
  const std::int64_t most =
      std::min(std::max<std::int64_t>(divide_up(4 * sm_count, steps.column_tiles), sm_count), tiling.units);
  const std::int64_t bytes = std::clamp(sm_count * tiling.unit_bytes, kConvertedBytes, 2 * kConvertedBytes);
  tiling.places = static_cast<int>(std::clamp<std::int64_t>(bytes / tiling.unit_bytes, 1, most));
  tiling.list_pieces = static_cast<int>(divide_up(tiling.units, kByTileConsumers));
  tiling.pack_pieces = static_cast<int>(gemm.G * steps.column_tiles * (steps.tile_columns / kPackColumns) * kPackParts);
  tiling.parts = tiling.row_steps[kFormF16];
  static_assert(kPartRows == rows_of_step(kFormF16));
  if (tiling.units * tiling.parts >= kCountMost) return {};
  tiling.by_parts = FastDivide(static_cast<std::uint32_t>(tiling.parts));
  tiling.by_units_of_sample = FastDivide(static_cast<std::uint32_t>(tiling.units_of_sample));
  if (ByTileMemory(gemm, tiling).bytes > most_bytes) return {};
  return tiling;
}

ByTileMemory::ByTileMemory(const TapGemm& gemm, const ByTileTiling& tiling) {
  const std::int64_t column_blocks = divide_up(gemm.columns, kWideColumns),
                     position_blocks = divide_up(gemm.position_count, kWidePositions);
  const std::int64_t blocks = gemm.N * gemm.G * column_blocks * position_blocks;
  multiplied = sizeof(WideBlocks::Words) + sizeof(ByTileWords);
  ready = multiplied + tiling.units * 4;
  extents = ready + tiling.units * 4;
  marks = extents + tiling.units * static_cast<std::int64_t>(sizeof(UnitExtent));
  zeros = round_up(marks + blocks, 8);
  list_size = static_cast<std::uint32_t>(std::min(kMostListed, blocks * kListedOfBlock));
  list = zeros;
  unit_list = list + std::int64_t{list_size} * 8;
  exponents = unit_list + tiling.units * 4;
  weights[0] = round_up(exponents + gemm.G * tiling.steps.column_tiles * tiling.steps.tile_columns * 4, 256);
  weights[1] = round_up(weights[0] + tiling.weight_bytes[0], 256);
  units = round_up(weights[1] + tiling.weight_bytes[1], 256);
  bytes = units + tiling.places * tiling.unit_bytes;
}

}  // namespace polyphase::cuda::tensor_core
