#include <algorithm>
#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"
#include "cuda/conv/tensor_core/both_in_shared/streamed/streamed.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/tiling.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/tiling.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr double kColumnsACycle = 2;  // of 64 rows, 16 deep, that the tensor cores of a multiprocessor multiply

double number(std::int64_t value) { return static_cast<double>(value); }
double pieces(std::int64_t size, std::int64_t piece) { return number((size + piece - 1) / piece); }

bool is_16_bits(const ConvProblem& problem) { return problem.dtype == DType::f16 || problem.dtype == DType::bf16; }
int element_bytes(const FormProblem& asked) { return static_cast<int>(size_of(asked.problem.dtype)); }
/// 16-bit numbers that one of the source becomes.
int parts_of(const FormProblem& asked) {
  return asked.problem.dtype == DType::f32 && asked.precision != Precision::tf32 ? 2 : 1;
}
/// Products of operands of that many parts: high by high, and the mixed ones.
int products_of(int parts) { return parts == 2 ? 3 : 1; }

/// Elements of an array beyond a multiple of `boundary` bytes.
int place_of(const void* address, std::uintptr_t boundary, int bytes) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % boundary) / bytes;
}
bool are_aligned(const FormProblem& asked, std::uintptr_t boundary) {
  return (reinterpret_cast<std::uintptr_t>(asked.source) | reinterpret_cast<std::uintptr_t>(asked.out)) % boundary == 0;
}

/// Zeros stand in operands where a phase lacks a tap that others have: an infinity of 16 bits would become NaN there.
bool has_gaps(const FormProblem& asked, const TapGemm& form) {
  return (form.full_classes < form.classes || form.full_planes < form.planes) &&
         (is_16_bits(asked.problem) || asked.precision == Precision::tf32);
}

/// One tile: its products, all of so many columns or positions, its numbers in and out; and the channels' tiles.
struct TileWork {
  double products, width, converted, stored;
  double column_tiles = 1;
};
/// Of the block that has the most tiles.
FormWork work_of_tiles(double tiles, const TileWork& tile, const FormProblem& asked, const TapGemm& form) {
  const double bytes = element_bytes(asked);
  return {.multiply = tiles * tile.products * tile.width / kColumnsACycle,
          .convert = tiles * tile.converted,
          .store = tiles * tile.stored,
          .tiles = tiles,
          .column_tiles = tile.column_tiles,
          .read = bytes * number(form.N * form.G * form.rows * form.source_length),
          .written = bytes * number(form.N * form.G * form.out_channels * form.out_length),
          .gathers = form.planes > 1,
          .spreads = form.classes > 1};
}
/// Blocks keep to their columns.
double tiles_of_block(const StoredSteps& steps) {
  return pieces(steps.blocks / steps.weight_tiles, static_cast<std::int64_t>(steps.grid) / steps.weight_tiles);
}

double tiles_of_columns(const Steps& steps, const TapGemm& form) { return number(steps.weight_tiles) / number(form.G); }

std::optional<FormWork> phases_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  if (asked.direction != ConvDirection::forward || parts_of(asked) == 2 || !are_aligned(asked, 16)) return std::nullopt;
  const PhaseSteps steps = best_phase_steps(asked.problem, gpu.sm_count, gpu.shared_bytes_per_block);
  if (steps.count == 0) return std::nullopt;
  const double copies = number(steps.grid) / number(steps.weight_tiles);
  const double tiles = pieces(steps.tiles, static_cast<std::int64_t>(copies) * kPhaseGroups) * kPhaseGroups;
  const double rows = number(steps.count) * kPhaseRows;
  const TileWork tile{number(steps.count) * kPhaseDepths * kPhaseClasses * kPhaseTaps, number(steps.channels),
                      rows * kPhasePositions, number(steps.channels) * kPhaseClasses * kPhasePositions};
  return work_of_tiles(tiles, tile, asked, form);
}

std::optional<FormWork> units_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  const bool is_f32 = asked.problem.dtype == DType::f32;
  if (asked.direction != ConvDirection::forward || !are_aligned(asked, 16)) return std::nullopt;
  if (is_f32 && asked.precision != Precision::fp32) return std::nullopt;
  const UnitSteps steps = units_steps(asked.problem, gpu);
  if (steps.count == 0) return std::nullopt;
  const UnitPattern& pattern = kUnitPatterns[steps.pattern];
  const double columns = is_f32 ? split_unit_columns(pattern) : pattern.columns();
  // Two warpgroups of 64 units each; what they convert is what each product reads.
  const TileWork tile{number(steps.count) * kUnitGroups * products_of(parts_of(asked)), columns,
                      number(steps.count) * kUnitRows * (is_f32 ? kSplitUnitWidth : kUnitWidth),
                      number(is_f32 ? kSplitUnitColumns : kUnitColumns) * kUnitPositions};
  return work_of_tiles(pieces(steps.turns, gpu.sm_count), tile, asked, form);
}

std::optional<FormWork> turned_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  if (!is_16_bits(asked.problem)) return std::nullopt;
  const TurnedPlace place{place_of(asked.source, 16, 2), place_of(asked.out, 32, 2)};
  const TurnedSteps steps = make_turned_steps(form, place, gpu.sm_count, gpu.shared_bytes_per_block);
  if (steps.depths == 0) return std::nullopt;
  const TileWork tile{number(steps.depths), number(steps.positions), number(steps.rows) * steps.slots,
                      number(steps.columns) * steps.window};
  return work_of_tiles(pieces(steps.tiles, steps.grid), tile, asked, form);
}

std::optional<FormWork> boxes_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  if (asked.problem.dtype != DType::f32) return std::nullopt;
  const int parts = parts_of(asked);
  const BoxesSteps steps =
      make_boxes_steps(form, boxes_shape_of(parts, asked.source, asked.out), gpu.sm_count, gpu.shared_bytes_per_block);
  if (steps.count == 0) return std::nullopt;
  // Of whole rows the low halves are sparse products, which take half the time.
  const double each = steps.kind == BoxesRows::whole ? 1.5 : 2.0;
  const double products = steps.depths * (parts == 2 && steps.is_half ? each : products_of(parts));
  // Where each row lies elsewhere, finding its numbers takes as long as converting them.
  const double finding = steps.load_bits > 0 ? 2 : 1;
  const TileWork tile{products, kBoxesPositions, finding * number(steps.rows) * (kBoxesPositions + steps.halo),
                      number(steps.columns) * kBoxesPositions, tiles_of_columns(steps, form)};
  return work_of_tiles(tiles_of_block(steps), tile, asked, form);
}

std::optional<FormWork> narrow_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  if (is_16_bits(asked.problem) && has_gaps(asked, form)) return std::nullopt;
  const int parts = parts_of(asked), bytes = element_bytes(asked);
  const NarrowShape shape{parts, bytes, place_of(asked.out, 32, bytes) == 0};
  const NarrowSteps steps = make_narrow_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
  if (steps.count == 0) return std::nullopt;
  const int products = steps.depths * (steps.is_stacked ? parts : products_of(parts));
  const TileWork tile{number(products), kNarrowPositions, number(steps.rows) * steps.planes * (kNarrowPositions + steps.halo),
                      number(steps.columns) * kNarrowPositions, tiles_of_columns(steps, form)};
  return work_of_tiles(tiles_of_block(steps), tile, asked, form);
}

std::optional<FormWork> rows_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  const RowSteps steps = resident_rows_steps(asked.problem, asked.direction, asked.precision, asked.source, asked.out, gpu);
  if (steps.count == 0) return std::nullopt;
  const double products = number(steps.count) * steps.taps * products_of(parts_of(asked)) * steps.positions / 64;
  const double runs = pieces(form.N * steps.position_tiles, static_cast<std::int64_t>(steps.grid) / steps.weight_tiles);
  const TileWork tile{products, number(steps.columns), number(steps.count) * steps.rows * steps.positions * steps.taps,
                      number(steps.columns) * steps.positions, tiles_of_columns(steps, form)};
  FormWork work = work_of_tiles(runs * steps.run, tile, asked, form);
  work.spreads = !steps.stores_pairs && steps.store_classes == 0;
  return work;
}

std::optional<FormWork> resident_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  if (is_16_bits(asked.problem) && has_gaps(asked, form)) return std::nullopt;
  const ResidentSteps steps = resident_steps(asked.problem, asked.direction, asked.precision, asked.source, asked.out, gpu);
  if (steps.count == 0) return std::nullopt;
  const double products = number(steps.count) * steps.product_count * products_of(parts_of(asked));
  const TileWork tile{products, number(steps.positions), number(steps.count) * steps.tile.items * 8,
                      number(std::min<std::int64_t>(steps.columns, form.columns)) * steps.positions,
                      tiles_of_columns(steps, form)};
  return work_of_tiles(tiles_of_block(steps), tile, asked, form);
}

std::optional<FormWork> streamed_work(const FormProblem& asked, const TapGemm& form, const DeviceProperties& gpu) {
  if (has_gaps(asked, form)) return std::nullopt;
  const auto [steps, shape] = streamed_steps(asked.problem, asked.direction, asked.precision, gpu);
  if (steps.count == 0) return std::nullopt;
  const double products =
      number(steps.count) * steps.taps * steps.planes * steps.rows / 16 * products_of(parts_of(asked)) * shape.columns / 64;
  const TileWork tile{products, number(shape.positions), number(steps.count) * steps.tile.items * shape.vector,
                      number(shape.columns) * shape.positions, tiles_of_columns(steps, form)};
  return work_of_tiles(pieces(steps.blocks, steps.grid), tile, asked, form);
}

}  // namespace

std::optional<FormWork> form_work(GatherForm kind, const FormProblem& asked, const DeviceProperties& gpu) {
  if (asked.problem.N == 0) return std::nullopt;
  const TapGemm form = make_tap_gemm(asked.problem, asked.direction);
  switch (kind) {
    case GatherForm::phases:
      return phases_work(asked, form, gpu);
    case GatherForm::units:
      return units_work(asked, form, gpu);
    case GatherForm::turned:
      return turned_work(asked, form, gpu);
    case GatherForm::boxes:
      return boxes_work(asked, form, gpu);
    case GatherForm::narrow:
      return narrow_work(asked, form, gpu);
    case GatherForm::rows:
      return rows_work(asked, form, gpu);
    case GatherForm::resident:
      return resident_work(asked, form, gpu);
    case GatherForm::streamed:
      return streamed_work(asked, form, gpu);
    case GatherForm::wide:
      break;
  }
  return std::nullopt;
}

}  // namespace polyphase::cuda::tensor_core
