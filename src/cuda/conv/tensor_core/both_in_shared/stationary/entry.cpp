#include <algorithm>

#include "cuda/conv/tensor_core/both_in_shared/stationary/stationary.hpp"
#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  if (is_16_bits(asked.problem) && has_gaps(asked, gemm)) return std::nullopt;
  const StationaryTiling tiling = stationary_tiling(asked, gpu);
  if (tiling.count == 0) return std::nullopt;
  const double products = number(tiling.count) * tiling.product_count * products_of(parts_of(asked));
  const TileCounts tile{products,
                        number(tiling.positions),
                        number(tiling.count) * tiling.tile.items * 8,
                        number(std::min<std::int64_t>(tiling.columns, gemm.columns)) * tiling.positions,
                        tiles_of_columns(tiling, gemm),
                        number(tiling.count)};
  return counts_of_tiles(tiles_of_block(tiling), tile, asked, gemm);
}

bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int) {
  const bool is_split = asked.problem.dtype == DType::f32 && asked.precision == Precision::fp32;
  return epilogue.is_light() && (!epilogue.has_aux() || staging_takes_aux(asked, epilogue, is_split));
}

}  // namespace

constinit const KernelEntry kStationary{.name = "stationary",
                                        .counts = counts,
                                        .rates = {.fp32 = {.multiply = 1.33,
                                                           .convert = 0.456,
                                                           .store = 0.0497,
                                                           .spread = 0.531,
                                                           .tile = 137,
                                                           .read = 0,
                                                           .read_again = 0.911,
                                                           .terabytes = 2.96,
                                                           .microseconds = 12},
                                                  .tf32 = {.multiply = 1.9,
                                                           .convert = 0.318,
                                                           .store = 0.00369,
                                                           .spread = 0.16,
                                                           .tile = 185,
                                                           .read = 0.606,
                                                           .read_again = 0.436,
                                                           .terabytes = 3.29,
                                                           .microseconds = 3.6},
                                                  .half = {.multiply = 1.07,
                                                           .convert = 0.0972,
                                                           .gather = 0.012,
                                                           .store = 0.00472,
                                                           .spread = 0.25,
                                                           .tile = 1110,
                                                           .step = 370,
                                                           .read = 0.3,
                                                           .read_again = 0.1,
                                                           .terabytes = 3.98,
                                                           .microseconds = 6.5}},
                                        .fuses = fuses,
                                        .activates_source = true,
                                        .gather = stationary_gather};

}  // namespace polyphase::cuda::tensor_core
