#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/phased_stride2.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/tiling.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (asked.direction != ConvDirection::forward || (asked.at.source | asked.at.out) % 16 != 0) return std::nullopt;
  const Phased2Tiling tiling = best_phased2_tiling(asked.problem, parts_of(asked), gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.count == 0) return std::nullopt;
  const double copies = number(tiling.grid) / number(tiling.weight_tiles);
  const double tiles = pieces(tiling.tiles, static_cast<std::int64_t>(copies) * kPhased2Groups) * kPhased2Groups;
  const double rows = number(tiling.count) * kPhased2Rows;
  const TileCounts tile{number(tiling.count) * kPhased2Depths * kPhased2Classes * kPhased2Taps * products_of(parts_of(asked)),
                        number(tiling.channels), rows * kPhased2Positions,
                        number(tiling.channels) * kPhased2Classes * kPhased2Positions};
  return counts_of_tiles(tiles, tile, asked, gemm);
}

/// Sums are finished in registers, after the suspect ones are found.
bool fuses(const KernelProblem&, const Epilogue& epilogue, int) {
  return !epilogue.has_aux() && epilogue.activation != Activation::snake;
}

}  // namespace

constinit const KernelEntry kPhasedStride2{
    .name = "phased_stride2",
    .counts = counts,
    .rates = {.fp32 = {.multiply = 1.6,
                       .convert = 0.4,
                       .store = 0.17,
                       .spread = 0.14,
                       .read = 0.5,
                       .terabytes = 4.3,
                       .microseconds = 14},
              .tf32 = {.multiply = 1.6,
                       .convert = 0.44,
                       .store = 0.17,
                       .spread = 0.14,
                       .read = 0.5,
                       .terabytes = 4.3,
                       .microseconds = 14},
              .half = {.multiply = 1.51, .convert = 0.17, .terabytes = 3.4, .microseconds = 4.6}},
    .fuses = fuses,
    .gather = phased_stride2_gather};

}  // namespace polyphase::cuda::tensor_core
