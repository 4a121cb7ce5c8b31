#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Positions of a sample that any output needs; one tighter than gemm.position_begin where rows allow.
struct Range {
  std::int64_t begin, count;
};
Range needed_positions(const TapGemm& gemm) {
  const std::int64_t farthest = (gemm.phase_classes - 1) * gemm.out_class_step + gemm.out_gcd - 1 + gemm.out_origin;
  const std::int64_t end = gemm.position_begin + gemm.position_count;
  std::int64_t begin = gemm.position_begin;
  while (begin + 1 < end && gemm.out_stride * begin + farthest < 0) ++begin;
  return {begin, end - begin};
}

/// Positions that a sample's end and the next one's beginning can share: neither has elements there.
std::int64_t shared_zeros(const TapGemm& gemm, const Range& range, std::int64_t most) {
  const std::int64_t last_plane = (gemm.planes - 1) * gemm.source_plane_step + gemm.source_origin;
  const std::int64_t last = range.begin + range.count - 1 + most;
  std::int64_t leading = 0, trailing = 0;
  while (leading < most && gemm.source_stride * (range.begin + leading) + last_plane < 0) ++leading;
  while (trailing < leading && gemm.source_stride * (last - trailing) + gemm.source_origin >= gemm.source_length) ++trailing;
  return trailing;
}

/// The sizes of a step, and how many stages fit. False if fewer than `least` do.
bool measure(const PreconvertedShape& shape, int planes, int taps, int available, int least, PreconvertedTiling& tiling) {
  const std::int64_t tiles = shape.along_positions ? kPreconvertedGroups : 1;
  const std::int64_t vectors = static_cast<std::int64_t>(shape.parts) * planes * kPreconvertedBlocks;  // per place or column
  const std::int64_t source_bytes = tiles * vectors * tiling.source.tile_places * 16;
  const std::int64_t weight_bytes = vectors * taps * tiling.tile_columns * 16;
  if ((source_bytes + weight_bytes) * least > available) return false;
  tiling.planes = planes;
  tiling.taps = taps;
  tiling.source_bytes = static_cast<int>(source_bytes);
  tiling.weight_bytes = static_cast<int>(weight_bytes);
  tiling.stages = static_cast<int>(std::min<std::int64_t>(kPreconvertedStagesMost, available / (source_bytes + weight_bytes)));
  return true;
}

/// The steps of the reduction: as many planes and taps per step as leave `stages` stages, else two.
bool cut_reduction(const TapGemm& gemm, const PreconvertedShape& shape, int available, int stages, PreconvertedTiling& tiling) {
  const int all_taps = tiling.source.taps_apart ? 1 : static_cast<int>(gemm.taps);
  for (const int least : {stages, 2}) {
    for (int taps = all_taps; taps >= 1; taps = taps == 1 ? 0 : (taps + 1) / 2) {
      for (int planes = static_cast<int>(tiling.source.planes); planes >= 1; planes = planes == 1 ? 0 : (planes + 1) / 2) {
        if (!measure(shape, planes, taps, available, least, tiling)) continue;
        tiling.row_steps = static_cast<int>(divide_up(gemm.rows, kPreconvertedBlocks * kPreconvertedRows));
        tiling.plane_steps = static_cast<int>(divide_up(tiling.source.planes, planes));
        tiling.tap_steps = static_cast<int>(divide_up(all_taps, taps));
        tiling.count = tiling.row_steps * tiling.plane_steps * tiling.tap_steps;
        return true;
      }
    }
  }
  return false;
}

/// How columns form subtiles, and how they are stored.
void cut_columns(const TapGemm& gemm, PreconvertedTiling& tiling) {
  const bool fills_rows = gemm.out_gcd == 1 && gemm.out_stride == gemm.classes && gemm.classes <= kPreconvertedSubtile &&
                          (gemm.classes == 1 || (gemm.out_class_step == 1 && gemm.phase_classes == gemm.classes));
  const auto whole = static_cast<int>(fills_rows ? kPreconvertedSubtile / gemm.classes * gemm.classes : 0);
  tiling.interleaved = whole * 8 >= kPreconvertedSubtile * 7;
  tiling.usable = tiling.interleaved ? whole : kPreconvertedSubtile;
  tiling.by_warps = tiling.interleaved && 8 % gemm.classes == 0;
}

/// Places and planes of the source.
void lay_out_tile(const TapGemm& gemm, const PreconvertedShape& shape, SourceLayout& source) {
  const std::int64_t reach = (gemm.taps - 1) * gemm.tap_step;
  source.taps_apart = reach > shape.positions / 2;
  source.planes = gemm.planes * (source.taps_apart ? gemm.taps : 1);
  source.tile_positions = shape.positions;
  source.tile_places = shape.positions + (source.taps_apart ? 0 : static_cast<int>(reach));
  source.parts = shape.parts;
}

constexpr std::int64_t kVectorPositions = 8;
constexpr std::int64_t kLongSample = 100 * kVectorPositions;  // whose pitch may be rounded up to vectors

/// The layout of the source operand: all samples in tiles.
void lay_out_source(const TapGemm& gemm, PreconvertedTiling& tiling) {
  const Range range = needed_positions(gemm);
  const std::int64_t reach = (gemm.taps - 1) * gemm.tap_step;
  SourceLayout& source = tiling.source;
  source.position_begin = range.begin;
  source.sample_pitch = range.count + reach - shared_zeros(gemm, range, reach);
  const bool fits_vectors = gemm.out_stride == 1 && gemm.out_length % kVectorPositions == 0;
  if (fits_vectors && source.sample_pitch >= kLongSample)
    source.sample_pitch = divide_up(source.sample_pitch, kVectorPositions) * kVectorPositions;
  tiling.whole_vectors = fits_vectors && (gemm.N == 1 || source.sample_pitch % kVectorPositions == 0);
  source.row_steps = tiling.row_steps;
  tiling.sample_positions = range.count;
  tiling.position_tiles = divide_up((gemm.N - 1) * source.sample_pitch + range.count, tiling.tile_positions);
  source.positions = tiling.position_tiles * tiling.tile_positions;
  source.tiles = source.positions / source.tile_positions;
  source.flags = divide_up(source.positions + reach, kFlagPositions);
  source.by_sample = FastDivide(static_cast<std::uint32_t>(source.sample_pitch));
  source.by_places = FastDivide(static_cast<std::uint32_t>(source.tile_places));
  source.by_planes = FastDivide(static_cast<std::uint32_t>(source.planes));
  source.by_own_planes = FastDivide(static_cast<std::uint32_t>(gemm.planes));
  source.by_row_blocks = FastDivide(static_cast<std::uint32_t>(source.row_steps * kPreconvertedBlocks));
}

constexpr PreconvertedShape kSplitShapes[] = {{128, false, 2, 1}, {128, true, 2, 1}};
constexpr PreconvertedShape kWholeShapes[] = {{256, false, 1, 1}, {256, true, 1, 1}, {128, false, 1, 1}};
constexpr std::int64_t kCountMost = 0x40000000;  // limit for numbers divided by FastDivide

}  // namespace

std::span<const PreconvertedShape> preconverted_shapes(int parts) {
  if (parts == 2) return kSplitShapes;
  return kWholeShapes;
}

PreconvertedTiling make_preconverted_tiling(const TapGemm& gemm, const PreconvertedShape& shape, int slices, int sm_count,
                                            int shared_limit, int stages) {
  PreconvertedTiling tiling{};
  const int groups_of_columns = shape.along_positions ? 1 : kPreconvertedGroups;
  tiling.tile_columns = kPreconvertedSubtile * groups_of_columns;
  tiling.tile_positions = shape.positions * (shape.along_positions ? kPreconvertedGroups : 1);
  cut_columns(gemm, tiling);
  lay_out_tile(gemm, shape, tiling.source);
  const int available = shared_limit / shape.blocks_per_sm - (shape.blocks_per_sm > 1 ? 1024 : 0) - kPreconvertedFixedBytes;
  if (!cut_reduction(gemm, shape, available, stages, tiling)) return {};
  lay_out_source(gemm, tiling);
  tiling.column_tiles = divide_up(gemm.columns, static_cast<std::int64_t>(tiling.usable) * groups_of_columns);
  tiling.tiles = gemm.G * tiling.column_tiles * tiling.position_tiles;
  tiling.row_steps_of_slice = static_cast<int>(divide_up(tiling.row_steps, slices));
  tiling.slices = static_cast<int>(divide_up(tiling.row_steps, tiling.row_steps_of_slice));
  tiling.blocks = tiling.tiles * tiling.slices;
  tiling.partial_bytes = tiling.slices == 1 ? 0 : tiling.blocks * tiling.tile_positions * tiling.tile_columns * 4;
  tiling.packed_bytes = gemm.G * tiling.column_tiles * tiling.count * static_cast<std::int64_t>(tiling.weight_bytes);
  const std::int64_t counts[] = {tiling.source.items(), tiling.blocks, gemm.columns, gemm.N, tiling.packed_bytes / 16};
  if (std::any_of(std::begin(counts), std::end(counts), [](std::int64_t count) { return count >= kCountMost; })) return {};
  tiling.positions_first = tiling.position_tiles <= 8;
  tiling.grid =
      static_cast<unsigned>(std::min<std::int64_t>(tiling.blocks, static_cast<std::int64_t>(sm_count) * shape.blocks_per_sm));
  tiling.shared_bytes = kPreconvertedFixedBytes + tiling.stages * (tiling.source_bytes + tiling.weight_bytes);
  tiling.by_tiles = FastDivide(static_cast<std::uint32_t>(tiling.tiles));
  tiling.by_column_tiles = FastDivide(static_cast<std::uint32_t>(tiling.column_tiles));
  tiling.by_position_tiles = FastDivide(static_cast<std::uint32_t>(tiling.position_tiles));
  tiling.by_usable = FastDivide(static_cast<std::uint32_t>(tiling.usable));
  tiling.by_classes = FastDivide(static_cast<std::uint32_t>(gemm.classes));
  return tiling;
}

double preconverted_cost(const TapGemm& gemm, const PreconvertedTiling& tiling, const PreconvertedShape& shape,
                         int element_bytes, int sm_count) {
  // Measured on an H200: the time of the products relative to the tensor cores' minimum, cycles per tile and per 128 outputs,
  // bytes per cycle from L2, the clock if only some multiprocessors have work, and TB/s of the converting pass and of the
  // product.
  const double slower = element_bytes == 4 ? 1.22 : 1.13;
  constexpr double kTile = 2400, kStored = 4.6, kPartial = 41, kScattered = 0.93;
  constexpr double kOfL2 = 68, kPlacesOfL2 = 1.1, kClock = 1.7e9, kFaster = 0.26, kSms = 132;
  constexpr double kConverted = 3.86e12, kMultiplied = 2.5e12, kSum = 1400, kSummed = 43;
  const double products = shape.parts == 2 ? 3 : 1, share = sm_count / kSms;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double depths = number(tiling.row_steps_of_slice) * kPreconvertedDepths * number(gemm.planes * gemm.taps);
  const double outputs = number(tiling.tile_columns) * tiling.tile_positions / (2 * kPreconvertedSubtile);
  const double multiply = slower * depths * products * kPreconvertedGroups * shape.positions / 2;
  const double stored = kStored * outputs;
  const double store = (tiling.slices > 1 ? kPartial * outputs : stored) + kTile;
  const double waves = number(divide_up(tiling.blocks, sm_count));
  const double busy = std::min(1.0, number(tiling.blocks) / sm_count);
  const double cores = waves * (multiply + store) / (kClock * (1 + kFaster * (1 - busy)));
  const double stage = 2.0 * shape.parts * kPreconvertedBlocks * kPreconvertedRows * number(gemm.planes) *
                       (number(gemm.taps) * tiling.tile_columns + kPlacesOfL2 * tiling.tile_positions);
  const double cache = number(tiling.blocks) / sm_count * number(tiling.row_steps_of_slice) * stage / kOfL2 / kClock;
  const double in = element_bytes * number(gemm.N * gemm.G * gemm.rows * gemm.source_length);
  const double out = element_bytes * number(gemm.N * gemm.G * gemm.out_channels * gemm.out_length);
  const double operand = number(tiling.source.bytes(gemm.G));
  const double memory = (operand + out) / (kMultiplied * share);
  // Outputs whose classes do not fill their rows are written one by one.
  const double scattered = tiling.interleaved ? 0 : kScattered * out / element_bytes / sm_count;
  // A block of the sum over slices has one tile, and two blocks use up a multiprocessor's share of L2 bandwidth.
  const double rate = kSummed * std::min(number(tiling.tiles), 2.0 * sm_count);
  const double sum = tiling.slices == 1 ? 0 : kSum + number(tiling.partial_bytes) / rate + stored;
  const double launches = element_bytes == 4 ? 11.3e-6 : 5.9e-6;
  return std::sqrt(cores * cores + cache * cache + memory * memory) + (scattered + sum) / kClock +
         (in + operand) / (kConverted * share) + launches;
}

}  // namespace polyphase::cuda::tensor_core
