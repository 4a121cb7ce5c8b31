#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/source_tma_16bit.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/tiling.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (!is_16_bits(asked.problem)) return std::nullopt;
  const Tma16Place place{asked.at.source % 16 / 2, asked.at.out / 2};
  const Tma16Tiling tiling = make_tma16_tiling(gemm, place, gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.depths == 0) return std::nullopt;
  const TileCounts tile{number(tiling.depths), number(tiling.positions), number(tiling.rows) * tiling.slots,
                        number(tiling.columns) * tiling.window};
  return counts_of_tiles(pieces(tiling.tiles, tiling.grid), tile, asked, gemm);
}

/// The aux operand is loaded in boxes into the staging, which holds one.
bool fuses(const KernelProblem&, const Epilogue& epilogue, int) {
  return epilogue.is_light() && !epilogue.has_both() && epilogue.first_aux() % 32 == 0;
}

}  // namespace

constinit const KernelEntry kSourceTma16bit{.name = "source_tma_16bit",
                                            .counts = counts,
                                            .rates = {.half = {.multiply = 1.42,
                                                               .convert = 0.167,
                                                               .store = 0.129,
                                                               .spread = 0.05,
                                                               .read = 0.935,
                                                               .terabytes = 3.56,
                                                               .microseconds = 8}},
                                            .fuses = fuses,
                                            .gather = source_tma_16bit_gather};

}  // namespace polyphase::cuda::tensor_core
