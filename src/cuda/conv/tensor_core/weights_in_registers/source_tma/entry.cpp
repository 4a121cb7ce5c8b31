#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

TmaTiling tiling_of(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  return make_tma_tiling(gemm, tma_shape_of(parts_of(asked), asked.at), gpu.sm_count, gpu.shared_bytes_per_block);
}

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (asked.problem.dtype != DType::f32) return std::nullopt;
  const int parts = parts_of(asked);
  const TmaTiling tiling = tiling_of(asked, gemm, gpu);
  if (tiling.count == 0) return std::nullopt;
  // With whole rows the low halves are sparse products, which take half the time.
  const double each = tiling.kind == TmaRows::whole ? 1.5 : 2.0;
  const double products = tiling.depths * (parts == 2 && tiling.is_half ? each : products_of(parts));
  // If rows have different offsets, finding the numbers takes as long as converting them.
  const double finding = tiling.load_bits > 0 ? 2 : 1;
  const TileCounts tile{products, kTmaPositions, finding * number(tiling.rows) * (kTmaPositions + tiling.halo),
                        number(tiling.columns) * kTmaPositions, tiles_of_columns(tiling, gemm)};
  return counts_of_tiles(tiles_of_block(tiling), tile, asked, gemm);
}

/// Fuses a light epilogue whose aux operands are at multiples of 16 bytes from the outputs; a residual and a derivative
/// together only if rows are whole sectors and weights leave registers.
bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device) {
  if (!epilogue.is_light() || (epilogue.residual | epilogue.derivative) % 16 != 0) return false;
  if (!epilogue.has_both()) return true;
  const TmaTiling tiling = tiling_of(asked, make_tap_gemm(asked.problem, asked.direction), properties(device));
  return tiling.kind == TmaRows::whole && source_tma_has_both(parts_of(asked), tiling.is_half, tiling.depths);
}

}  // namespace

constinit const KernelEntry kSourceTma{
    .name = "source_tma",
    .counts = counts,
    .rates = {.fp32 = {.multiply = 1.15,
                       .convert = 0.218,
                       .tile = 71.2,
                       .read = 1.45,
                       .read_again = 0.487,
                       .terabytes = 4.76,
                       .microseconds = 2.7},
              .tf32 = {.tile = 101, .read = 0.895, .read_again = 0.488, .terabytes = 3.62, .microseconds = 2.2}},
    .fuses = fuses,
    .gather = source_tma_gather};

}  // namespace polyphase::cuda::tensor_core
