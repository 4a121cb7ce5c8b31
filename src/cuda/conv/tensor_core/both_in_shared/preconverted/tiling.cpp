#include "cuda/conv/tensor_core/both_in_shared/preconverted/tiling.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace polyphase::cuda::tensor_core {
namespace {

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Positions of a sample that any output needs: tighter by one than form.position_begin where rows allow.
struct Range {
  std::int64_t begin, count;
};
Range needed_positions(const TapGemm& form) {
  const std::int64_t farthest = (form.phase_classes - 1) * form.out_class_step + form.out_gcd - 1 + form.out_origin;
  const std::int64_t end = form.position_begin + form.position_count;
  std::int64_t begin = form.position_begin;
  while (begin + 1 < end && form.out_stride * begin + farthest < 0) ++begin;
  return {begin, end - begin};
}

/// Positions that a sample's end and the next one's beginning can share: both read nothing of their rows there.
std::int64_t shared_zeros(const TapGemm& form, const Range& range, std::int64_t most) {
  const std::int64_t last_plane = (form.planes - 1) * form.source_plane_step + form.source_origin;
  const std::int64_t last = range.begin + range.count - 1 + most;
  std::int64_t leading = 0, trailing = 0;
  while (leading < most && form.source_stride * (range.begin + leading) + last_plane < 0) ++leading;
  while (trailing < leading && form.source_stride * (last - trailing) + form.source_origin >= form.source_length) ++trailing;
  return trailing;
}

/// Sizes of a step, and how many of them fit. False where fewer than `least` do.
bool measure(const WideShape& shape, int planes, int taps, int available, int least, WideSteps& steps) {
  const std::int64_t tiles = shape.along_positions ? kWideGroups : 1;
  const std::int64_t vectors = static_cast<std::int64_t>(shape.parts) * planes * kWideBlocks;  // of a place or column
  const std::int64_t source_bytes = tiles * vectors * steps.source.tile_places * 16;
  const std::int64_t weight_bytes = vectors * taps * steps.tile_columns * 16;
  if ((source_bytes + weight_bytes) * least > available) return false;
  steps.planes = planes;
  steps.taps = taps;
  steps.source_bytes = static_cast<int>(source_bytes);
  steps.weight_bytes = static_cast<int>(weight_bytes);
  steps.stages = static_cast<int>(std::min<std::int64_t>(kWideStagesMost, available / (source_bytes + weight_bytes)));
  return true;
}

/// The steps of the reduction: as many planes and taps in one as leave three stages, else two.
bool cut_reduction(const TapGemm& form, const WideShape& shape, int available, WideSteps& steps) {
  const int all_taps = steps.source.taps_apart ? 1 : static_cast<int>(form.taps);
  for (const int least : {3, 2}) {
    for (int taps = all_taps; taps >= 1; taps = taps == 1 ? 0 : (taps + 1) / 2) {
      for (int planes = static_cast<int>(steps.source.planes); planes >= 1; planes = planes == 1 ? 0 : (planes + 1) / 2) {
        if (!measure(shape, planes, taps, available, least, steps)) continue;
        steps.row_steps = static_cast<int>(pieces(form.rows, kWideBlocks * kWideRows));
        steps.plane_steps = static_cast<int>(pieces(steps.source.planes, planes));
        steps.tap_steps = static_cast<int>(pieces(all_taps, taps));
        steps.count = steps.row_steps * steps.plane_steps * steps.tap_steps;
        return true;
      }
    }
  }
  return false;
}

/// How columns become subtiles, and how they are stored.
void cut_columns(const TapGemm& form, WideSteps& steps) {
  const bool fills_rows = form.out_gcd == 1 && form.out_stride == form.classes && form.classes <= kWideSubtile &&
                          (form.classes == 1 || (form.out_class_step == 1 && form.phase_classes == form.classes));
  const auto whole = static_cast<int>(fills_rows ? kWideSubtile / form.classes * form.classes : 0);
  steps.interleaved = whole * 8 >= kWideSubtile * 7;
  steps.usable = steps.interleaved ? whole : kWideSubtile;
  steps.by_warps = steps.interleaved && 8 % form.classes == 0;
}

/// Places and planes of the source.
void lay_out_tile(const TapGemm& form, const WideShape& shape, SourceForm& source) {
  const std::int64_t reach = (form.taps - 1) * form.tap_step;
  source.taps_apart = reach > shape.positions / 2;
  source.planes = form.planes * (source.taps_apart ? form.taps : 1);
  source.tile_positions = shape.positions;
  source.tile_places = shape.positions + (source.taps_apart ? 0 : static_cast<int>(reach));
  source.parts = shape.parts;
}

/// The source as operand: all samples in tiles.
void lay_out_source(const TapGemm& form, WideSteps& steps) {
  const Range range = needed_positions(form);
  const std::int64_t reach = (form.taps - 1) * form.tap_step;
  SourceForm& source = steps.source;
  source.position_begin = range.begin;
  source.sample_pitch = range.count + reach - shared_zeros(form, range, reach);
  source.row_steps = steps.row_steps;
  steps.sample_positions = range.count;
  steps.position_tiles = pieces((form.N - 1) * source.sample_pitch + range.count, steps.tile_positions);
  source.positions = steps.position_tiles * steps.tile_positions;
  source.tiles = source.positions / source.tile_positions;
  source.flags = pieces(source.positions + reach, kFlagPositions);
  source.by_sample = FastDivide(static_cast<std::uint32_t>(source.sample_pitch));
  source.by_places = FastDivide(static_cast<std::uint32_t>(source.tile_places));
  source.by_planes = FastDivide(static_cast<std::uint32_t>(source.planes));
  source.by_own_planes = FastDivide(static_cast<std::uint32_t>(form.planes));
  source.by_row_blocks = FastDivide(static_cast<std::uint32_t>(source.row_steps * kWideBlocks));
}

constexpr WideShape kSplitShapes[] = {{128, false, 2, 1}, {128, true, 2, 1}};
constexpr WideShape kWholeShapes[] = {{256, false, 1, 1}, {256, true, 1, 1}, {128, false, 1, 1}};
constexpr std::int64_t kCountMost = 0x40000000;  // of what is divided by FastDivide

}  // namespace

std::span<const WideShape> wide_shapes(int parts) {
  if (parts == 2) return kSplitShapes;
  return kWholeShapes;
}

WideSteps make_wide_steps(const TapGemm& form, const WideShape& shape, int slices, int sm_count, int shared_limit) {
  WideSteps steps{};
  const int groups_of_columns = shape.along_positions ? 1 : kWideGroups;
  steps.tile_columns = kWideSubtile * groups_of_columns;
  steps.tile_positions = shape.positions * (shape.along_positions ? kWideGroups : 1);
  cut_columns(form, steps);
  lay_out_tile(form, shape, steps.source);
  const int available = shared_limit / shape.blocks_per_sm - (shape.blocks_per_sm > 1 ? 1024 : 0) - kWideFixedBytes;
  if (!cut_reduction(form, shape, available, steps)) return {};
  lay_out_source(form, steps);
  steps.column_tiles = pieces(form.columns, static_cast<std::int64_t>(steps.usable) * groups_of_columns);
  steps.tiles = form.G * steps.column_tiles * steps.position_tiles;
  steps.row_steps_of_slice = static_cast<int>(pieces(steps.row_steps, slices));
  steps.slices = static_cast<int>(pieces(steps.row_steps, steps.row_steps_of_slice));
  steps.blocks = steps.tiles * steps.slices;
  steps.partial_bytes = steps.slices == 1 ? 0 : steps.blocks * steps.tile_positions * steps.tile_columns * 4;
  steps.packed_bytes = form.G * steps.column_tiles * steps.count * static_cast<std::int64_t>(steps.weight_bytes);
  const std::int64_t counts[] = {steps.source.items(), steps.blocks, form.columns, form.N, steps.packed_bytes / 16};
  if (std::any_of(std::begin(counts), std::end(counts), [](std::int64_t count) { return count >= kCountMost; })) return {};
  steps.positions_first = steps.position_tiles <= 8;
  steps.grid =
      static_cast<unsigned>(std::min<std::int64_t>(steps.blocks, static_cast<std::int64_t>(sm_count) * shape.blocks_per_sm));
  steps.shared_bytes = kWideFixedBytes + steps.stages * (steps.source_bytes + steps.weight_bytes);
  steps.by_tiles = FastDivide(static_cast<std::uint32_t>(steps.tiles));
  steps.by_column_tiles = FastDivide(static_cast<std::uint32_t>(steps.column_tiles));
  steps.by_position_tiles = FastDivide(static_cast<std::uint32_t>(steps.position_tiles));
  steps.by_usable = FastDivide(static_cast<std::uint32_t>(steps.usable));
  steps.by_classes = FastDivide(static_cast<std::uint32_t>(form.classes));
  return steps;
}

double wide_seconds(const TapGemm& form, const WideSteps& steps, const WideShape& shape, int element_bytes, int sm_count) {
  // All measured on an H200: what products take beside the tensor cores' least, cycles a tile and an output's 128th, bytes a
  // cycle of L2, clock where only a part of the multiprocessors has work, terabytes a second of the pass that makes operands
  // and of the product.
  const double slower = element_bytes == 4 ? 1.22 : 1.13;
  constexpr double kTile = 2400, kStored = 4.6, kPartial = 41, kScattered = 0.93;
  constexpr double kOfL2 = 68, kPlacesOfL2 = 1.1, kClock = 1.7e9, kFaster = 0.26, kSms = 132;
  constexpr double kConverted = 3.86e12, kMultiplied = 2.5e12, kSum = 1400, kSummed = 43;
  const double products = shape.parts == 2 ? 3 : 1, share = sm_count / kSms;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double depths = number(steps.row_steps_of_slice) * kWideDepths * number(form.planes * form.taps);
  const double outputs = number(steps.tile_columns) * steps.tile_positions / (2 * kWideSubtile);
  const double multiply = slower * depths * products * kWideGroups * shape.positions / 2;
  const double stored = kStored * outputs;
  const double store = (steps.slices > 1 ? kPartial * outputs : stored) + kTile;
  const double waves = number(pieces(steps.blocks, sm_count));
  const double busy = std::min(1.0, number(steps.blocks) / sm_count);
  const double cores = waves * (multiply + store) / (kClock * (1 + kFaster * (1 - busy)));
  const double stage = 2.0 * shape.parts * kWideBlocks * kWideRows * number(form.planes) *
                       (number(form.taps) * steps.tile_columns + kPlacesOfL2 * steps.tile_positions);
  const double cache = number(steps.blocks) / sm_count * number(steps.row_steps_of_slice) * stage / kOfL2 / kClock;
  const double in = element_bytes * number(form.N * form.G * form.rows * form.source_length);
  const double out = element_bytes * number(form.N * form.G * form.out_channels * form.out_length);
  const double operand = number(steps.source.bytes(form.G));
  const double memory = (operand + out) / (kMultiplied * share);
  // Outputs whose classes do not fill their rows are written one by one.
  const double scattered = steps.interleaved ? 0 : kScattered * out / element_bytes / sm_count;
  // A block of the sum over slices has a tile, and two of them are all that a multiprocessor's share of L2 gives.
  const double rate = kSummed * std::min(number(steps.tiles), 2.0 * sm_count);
  const double sum = steps.slices == 1 ? 0 : kSum + number(steps.partial_bytes) / rate + stored;
  const double launches = element_bytes == 4 ? 11.3e-6 : 5.9e-6;
  return std::sqrt(cores * cores + cache * cache + memory * memory) + (scattered + sum) / kClock +
         (in + operand) / (kConverted * share) + launches;
}

}  // namespace polyphase::cuda::tensor_core
