#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  const bool is_f32 = asked.problem.dtype == DType::f32;
  if (asked.direction != ConvDirection::forward || (asked.at.source | asked.at.out) % 16 != 0) return std::nullopt;
  if (is_f32 && asked.precision != Precision::fp32) return std::nullopt;
  const Phased4Tiling tiling = phased_stride4_tiling(asked.problem, gpu);
  if (tiling.count == 0) return std::nullopt;
  const Phased4Pattern& pattern = kPhased4Patterns[tiling.pattern];
  const double columns = is_f32 ? f32_unit_columns(pattern) : pattern.columns();
  // Two warpgroups of 64 units each; each product reads what they convert.
  const TileCounts tile{number(tiling.count) * kPhased4Groups * products_of(parts_of(asked)), columns,
                        number(tiling.count) * kPhased4Rows * (is_f32 ? kPhased4F32Width : kPhased4Width),
                        number(is_f32 ? kPhased4F32Columns : kPhased4Columns) * kPhased4Positions};
  return counts_of_tiles(pieces(tiling.turns, gpu.sm_count), tile, asked, gemm);
}

/// Sums are finished in registers, after the suspect ones are found.
bool fuses(const KernelProblem&, const Epilogue& epilogue, int) {
  return !epilogue.has_aux() && epilogue.activation != Activation::snake;
}

}  // namespace

constinit const KernelEntry kPhasedStride4{.name = "phased_stride4",
                                           .counts = counts,
                                           .rates = {.fp32 = {.multiply = 1.28,
                                                              .store = 0.1,
                                                              .spread = 0.08,
                                                              .tile = 360,
                                                              .read = 0.72,
                                                              .terabytes = 2.26,
                                                              .microseconds = 9},
                                                     .half = {.multiply = 1.11,
                                                              .store = 0.1,
                                                              .spread = 0.08,
                                                              .tile = 360,
                                                              .read = 0.72,
                                                              .terabytes = 2.26,
                                                              .microseconds = 5.4}},
                                           .fuses = fuses,
                                           .gather = phased_stride4_gather};

}  // namespace polyphase::cuda::tensor_core
