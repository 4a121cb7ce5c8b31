#include "cuda/conv/tensor_core/pipeline/cost.hpp"

#include <cmath>

#include "cuda/conv/tensor_core/operand/parts.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr double kClock = 1.7e9, kSms = 132;  // of the GPU that the rates were fitted on, under such load
constexpr double kColumnsACycle = 2;          // columns of 64 rows, 16 deep, per cycle and multiprocessor

/// Combines four overlapping times; the longest counts most.
double overlapped(double a, double b, double c, double d) { return std::cbrt(a * a * a + b * b * b + c * c * c + d * d * d); }

}  // namespace

double cost_seconds(const CostCounts& counts, const CostRates& rates, const DeviceProperties& gpu) {
  const double multiply = rates.multiply * counts.multiply;
  const double convert = (rates.convert + (counts.gathers ? rates.gather : 0)) * counts.convert;
  const double store = (rates.store + (counts.spreads ? rates.spread : 0)) * counts.store;
  const double bytes = counts.read * (rates.read + rates.read_again * (counts.column_tiles - 1)) + counts.written;
  const double moved = bytes / (rates.terabytes * 1e12 * gpu.sm_count / kSms);
  return overlapped(multiply / kClock, convert / kClock, store / kClock, moved) +
         (rates.tile * counts.tiles + rates.step * counts.steps) / kClock + rates.microseconds * 1e-6;
}

CostCounts counts_of_tiles(double tiles, const TileCounts& tile, const KernelProblem& asked, const TapGemm& gemm) {
  const auto bytes = static_cast<double>(size_of(asked.problem.dtype));
  return {.multiply = tiles * tile.products * tile.width / kColumnsACycle,
          .convert = tiles * tile.converted,
          .store = tiles * tile.stored,
          .tiles = tiles,
          .steps = tiles * tile.steps,
          .column_tiles = tile.column_tiles,
          .read = bytes * number(gemm.N * gemm.G * gemm.rows * gemm.source_length),
          .written = bytes * number(gemm.N * gemm.G * gemm.out_channels * gemm.out_length),
          .gathers = gemm.planes > 1,
          .spreads = gemm.classes > 1};
}

double tiles_of_block(const Tiling& tiling) {
  return pieces(tiling.blocks / tiling.weight_tiles, static_cast<std::int64_t>(tiling.grid) / tiling.weight_tiles);
}

double tiles_of_columns(const Tiling& tiling, const TapGemm& gemm) { return number(tiling.weight_tiles) / number(gemm.G); }

bool is_16_bits(const ConvProblem& problem) { return problem.dtype == DType::f16 || problem.dtype == DType::bf16; }

int parts_of(const KernelProblem& asked) { return parts_of(asked.problem, asked.precision); }

bool has_gaps(const KernelProblem& asked, const TapGemm& gemm) {
  return (gemm.full_classes < gemm.classes || gemm.full_planes < gemm.planes) &&
         (is_16_bits(asked.problem) || asked.precision == Precision::tf32);
}

}  // namespace polyphase::cuda::tensor_core
