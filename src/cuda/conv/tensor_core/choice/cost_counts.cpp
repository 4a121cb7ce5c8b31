#include <algorithm>
#include <cstdint>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"
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
int element_bytes(const KernelProblem& asked) { return static_cast<int>(size_of(asked.problem.dtype)); }
/// 16-bit numbers that one of the source becomes.
int parts_of(const KernelProblem& asked) {
  return asked.problem.dtype == DType::f32 && asked.precision != Precision::tf32 ? 2 : 1;
}
/// Products of operands of that many parts: high by high, and the mixed ones.
int products_of(int parts) { return parts == 2 ? 3 : 1; }

/// Elements of an array beyond a multiple of `boundary` bytes.
int place_of(const void* address, std::uintptr_t boundary, int bytes) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % boundary) / bytes;
}
bool are_aligned(const KernelProblem& asked, std::uintptr_t boundary) {
  return (reinterpret_cast<std::uintptr_t>(asked.source) | reinterpret_cast<std::uintptr_t>(asked.out)) % boundary == 0;
}

/// Zeros stand in operands where a phase lacks a tap that others have: an infinity of 16 bits would become NaN there.
bool has_gaps(const KernelProblem& asked, const TapGemm& gemm) {
  return (gemm.full_classes < gemm.classes || gemm.full_planes < gemm.planes) &&
         (is_16_bits(asked.problem) || asked.precision == Precision::tf32);
}

/// One tile: its products, all of so many columns or positions, its numbers in and out; and the channels' tiles.
struct TileCounts {
  double products, width, converted, stored;
  double column_tiles = 1;
};
/// Of the block that has the most tiles.
CostCounts counts_of_tiles(double tiles, const TileCounts& tile, const KernelProblem& asked, const TapGemm& gemm) {
  const double bytes = element_bytes(asked);
  return {.multiply = tiles * tile.products * tile.width / kColumnsACycle,
          .convert = tiles * tile.converted,
          .store = tiles * tile.stored,
          .tiles = tiles,
          .column_tiles = tile.column_tiles,
          .read = bytes * number(gemm.N * gemm.G * gemm.rows * gemm.source_length),
          .written = bytes * number(gemm.N * gemm.G * gemm.out_channels * gemm.out_length),
          .gathers = gemm.planes > 1,
          .spreads = gemm.classes > 1};
}
/// Blocks keep to their columns.
double tiles_of_block(const Tiling& tiling) {
  return pieces(tiling.blocks / tiling.weight_tiles, static_cast<std::int64_t>(tiling.grid) / tiling.weight_tiles);
}

double tiles_of_columns(const Tiling& tiling, const TapGemm& gemm) { return number(tiling.weight_tiles) / number(gemm.G); }

std::optional<CostCounts> phased_stride2_counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (asked.direction != ConvDirection::forward || parts_of(asked) == 2 || !are_aligned(asked, 16)) return std::nullopt;
  const Phased2Tiling tiling = best_phased2_tiling(asked.problem, gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.count == 0) return std::nullopt;
  const double copies = number(tiling.grid) / number(tiling.weight_tiles);
  const double tiles = pieces(tiling.tiles, static_cast<std::int64_t>(copies) * kPhased2Groups) * kPhased2Groups;
  const double rows = number(tiling.count) * kPhased2Rows;
  const TileCounts tile{number(tiling.count) * kPhased2Depths * kPhased2Classes * kPhased2Taps, number(tiling.channels),
                        rows * kPhased2Positions, number(tiling.channels) * kPhased2Classes * kPhased2Positions};
  return counts_of_tiles(tiles, tile, asked, gemm);
}

std::optional<CostCounts> phased_stride4_counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  const bool is_f32 = asked.problem.dtype == DType::f32;
  if (asked.direction != ConvDirection::forward || !are_aligned(asked, 16)) return std::nullopt;
  if (is_f32 && asked.precision != Precision::fp32) return std::nullopt;
  const Phased4Tiling tiling = phased_stride4_tiling(asked.problem, gpu);
  if (tiling.count == 0) return std::nullopt;
  const Phased4Pattern& pattern = kPhased4Patterns[tiling.pattern];
  const double columns = is_f32 ? f32_unit_columns(pattern) : pattern.columns();
  // Two warpgroups of 64 units each; what they convert is what each product reads.
  const TileCounts tile{number(tiling.count) * kPhased4Groups * products_of(parts_of(asked)), columns,
                        number(tiling.count) * kPhased4Rows * (is_f32 ? kPhased4F32Width : kPhased4Width),
                        number(is_f32 ? kPhased4F32Columns : kPhased4Columns) * kPhased4Positions};
  return counts_of_tiles(pieces(tiling.turns, gpu.sm_count), tile, asked, gemm);
}

std::optional<CostCounts> source_tma_16bit_counts(const KernelProblem& asked, const TapGemm& gemm,
                                                  const DeviceProperties& gpu) {
  if (!is_16_bits(asked.problem)) return std::nullopt;
  const Tma16Place place{place_of(asked.source, 16, 2), place_of(asked.out, 32, 2)};
  const Tma16Tiling tiling = make_tma16_tiling(gemm, place, gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.depths == 0) return std::nullopt;
  const TileCounts tile{number(tiling.depths), number(tiling.positions), number(tiling.rows) * tiling.slots,
                        number(tiling.columns) * tiling.window};
  return counts_of_tiles(pieces(tiling.tiles, tiling.grid), tile, asked, gemm);
}

std::optional<CostCounts> source_tma_counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (asked.problem.dtype != DType::f32) return std::nullopt;
  const int parts = parts_of(asked);
  const TmaTiling tiling =
      make_tma_tiling(gemm, tma_shape_of(parts, asked.source, asked.out), gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.count == 0) return std::nullopt;
  // Of whole rows the low halves are sparse products, which take half the time.
  const double each = tiling.kind == TmaRows::whole ? 1.5 : 2.0;
  const double products = tiling.depths * (parts == 2 && tiling.is_half ? each : products_of(parts));
  // Where each row lies elsewhere, finding its numbers takes as long as converting them.
  const double finding = tiling.load_bits > 0 ? 2 : 1;
  const TileCounts tile{products, kTmaPositions, finding * number(tiling.rows) * (kTmaPositions + tiling.halo),
                        number(tiling.columns) * kTmaPositions, tiles_of_columns(tiling, gemm)};
  return counts_of_tiles(tiles_of_block(tiling), tile, asked, gemm);
}

std::optional<CostCounts> source_bulk_counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (is_16_bits(asked.problem) && has_gaps(asked, gemm)) return std::nullopt;
  const int parts = parts_of(asked), bytes = element_bytes(asked);
  const BulkShape shape{parts, bytes, place_of(asked.out, 32, bytes) == 0};
  const BulkTiling tiling = make_bulk_tiling(gemm, shape, gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.count == 0) return std::nullopt;
  const int products = tiling.depths * (tiling.is_stacked ? parts : products_of(parts));
  const TileCounts tile{number(products), kBulkPositions, number(tiling.rows) * tiling.planes * (kBulkPositions + tiling.halo),
                        number(tiling.columns) * kBulkPositions, tiles_of_columns(tiling, gemm)};
  return counts_of_tiles(tiles_of_block(tiling), tile, asked, gemm);
}

std::optional<CostCounts> stride1_counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  const Stride1Tiling tiling = stride1_tiling(asked.problem, asked.direction, asked.precision, asked.source, asked.out, gpu);
  if (tiling.count == 0) return std::nullopt;
  const double products = number(tiling.count) * tiling.taps * products_of(parts_of(asked)) * tiling.positions / 64;
  const double runs = pieces(gemm.N * tiling.position_tiles, static_cast<std::int64_t>(tiling.grid) / tiling.weight_tiles);
  const TileCounts tile{products, number(tiling.columns), number(tiling.count) * tiling.rows * tiling.positions * tiling.taps,
                        number(tiling.columns) * tiling.positions, tiles_of_columns(tiling, gemm)};
  CostCounts work = counts_of_tiles(runs * tiling.run, tile, asked, gemm);
  work.spreads = !tiling.stores_pairs && tiling.store_classes == 0;
  return work;
}

std::optional<CostCounts> stationary_counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (is_16_bits(asked.problem) && has_gaps(asked, gemm)) return std::nullopt;
  const StationaryTiling tiling =
      stationary_tiling(asked.problem, asked.direction, asked.precision, asked.source, asked.out, gpu);
  if (tiling.count == 0) return std::nullopt;
  const double products = number(tiling.count) * tiling.product_count * products_of(parts_of(asked));
  const TileCounts tile{products, number(tiling.positions), number(tiling.count) * tiling.tile.items * 8,
                        number(std::min<std::int64_t>(tiling.columns, gemm.columns)) * tiling.positions,
                        tiles_of_columns(tiling, gemm)};
  return counts_of_tiles(tiles_of_block(tiling), tile, asked, gemm);
}

}  // namespace

std::optional<CostCounts> cost_counts(GatherKernel kind, const KernelProblem& asked, const DeviceProperties& gpu) {
  if (asked.problem.N == 0) return std::nullopt;
  const TapGemm gemm = make_tap_gemm(asked.problem, asked.direction);
  switch (kind) {
    case GatherKernel::phased_stride2:
      return phased_stride2_counts(asked, gemm, gpu);
    case GatherKernel::phased_stride4:
      return phased_stride4_counts(asked, gemm, gpu);
    case GatherKernel::source_tma_16bit:
      return source_tma_16bit_counts(asked, gemm, gpu);
    case GatherKernel::source_tma:
      return source_tma_counts(asked, gemm, gpu);
    case GatherKernel::source_bulk:
      return source_bulk_counts(asked, gemm, gpu);
    case GatherKernel::stride1:
      return stride1_counts(asked, gemm, gpu);
    case GatherKernel::stationary:
      return stationary_counts(asked, gemm, gpu);
    case GatherKernel::preconverted:
      break;
  }
  return std::nullopt;
}

}  // namespace polyphase::cuda::tensor_core
