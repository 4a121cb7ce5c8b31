#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/tiling.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

BulkTiling tiling_of(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  const BulkShape shape{parts_of(asked), static_cast<int>(size_of(asked.problem.dtype)), asked.at.out == 0};
  return make_bulk_tiling(gemm, shape, gpu.sm_count, gpu.shared_bytes_per_block);
}

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (is_16_bits(asked.problem) && has_gaps(asked, gemm)) return std::nullopt;
  const int parts = parts_of(asked);
  const BulkTiling tiling = tiling_of(asked, gemm, gpu);
  if (tiling.count == 0) return std::nullopt;
  const int products = tiling.depths * (tiling.is_stacked ? parts : products_of(parts));
  const TileCounts tile{number(products), kBulkPositions, number(tiling.rows) * tiling.planes * (kBulkPositions + tiling.halo),
                        number(tiling.columns) * kBulkPositions, tiles_of_columns(tiling, gemm)};
  return counts_of_tiles(tiles_of_block(tiling), tile, asked, gemm);
}

bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device) {
  if (!epilogue.is_light()) return false;
  if (epilogue.has_aux()) return staging_takes_aux(asked, epilogue, false);
  return source_bulk_activates(asked, properties(device));
}

}  // namespace

bool source_bulk_activates(const KernelProblem& asked, const DeviceProperties& gpu) {
  return !tiling_of(asked, make_tap_gemm(asked.problem, asked.direction), gpu).is_spread;
}

constinit const KernelEntry kSourceBulk{.name = "source_bulk",
                                        .counts = counts,
                                        .rates = {.fp32 = {.multiply = 1.2,
                                                           .convert = 0.306,
                                                           .gather = 0.0111,
                                                           .store = 0.104,
                                                           .spread = 0.195,
                                                           .tile = 1190,
                                                           .read = 0.559,
                                                           .read_again = 1.11,
                                                           .terabytes = 4.77,
                                                           .microseconds = 3.7},
                                                  .tf32 = {.convert = 0.247,
                                                           .store = 0.228,
                                                           .spread = 0.0403,
                                                           .tile = 42.1,
                                                           .read = 0.828,
                                                           .read_again = 0.537,
                                                           .terabytes = 3.94,
                                                           .microseconds = 9},
                                                  .half = {.multiply = 1.86,
                                                           .convert = 0.241,
                                                           .store = 0.203,
                                                           .spread = 0.0924,
                                                           .tile = 64,
                                                           .read = 0.631,
                                                           .read_again = 0.49,
                                                           .terabytes = 4.19,
                                                           .microseconds = 5.5}},
                                        .fuses = fuses,
                                        .gather = source_bulk_gather};

}  // namespace polyphase::cuda::tensor_core
