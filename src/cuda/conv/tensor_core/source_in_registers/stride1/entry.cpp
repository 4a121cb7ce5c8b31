#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

std::optional<CostCounts> counts(const KernelProblem& asked, const TapGemm& gemm, const DeviceProperties& gpu) {
  const Stride1Tiling tiling = stride1_tiling(asked, gpu);
  if (tiling.count == 0) return std::nullopt;
  const double products = number(tiling.count) * tiling.taps * products_of(parts_of(asked)) * tiling.positions / 64;
  const double runs = pieces(gemm.N * tiling.position_tiles, static_cast<std::int64_t>(tiling.grid) / tiling.weight_tiles);
  const TileCounts tile{products, number(tiling.columns), number(tiling.count) * tiling.rows * tiling.positions * tiling.taps,
                        number(tiling.columns) * tiling.positions, tiles_of_columns(tiling, gemm)};
  CostCounts work = counts_of_tiles(runs * tiling.run, tile, asked, gemm);
  work.spreads = !tiling.stores_pairs && tiling.store_classes == 0;
  return work;
}

/// Fuses ReLU and LeakyReLU in f32, where the products hide them, and in 16-bit types whose rows do not begin at sectors;
/// direct stores have no time for more. Fuses a residual or a derivative of f32 if pairs of outputs are stored as one number.
bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device) {
  if (!epilogue.is_light()) return false;
  const bool is_f32 = asked.problem.dtype == DType::f32;
  if (is_f32 && !epilogue.has_aux()) return true;
  if (!is_f32 && epilogue.has_aux()) return false;  // hardly faster than a launch
  const Stride1Tiling tiling = stride1_tiling(asked, properties(device));
  if (!epilogue.has_aux()) return tiling.store_classes != 0;
  constexpr std::int64_t kPair = 2 * sizeof(float);
  return tiling.stores_pairs && tiling.store_classes == 0 && (epilogue.residual | epilogue.derivative) % kPair == 0;
}

}  // namespace

constinit const KernelEntry kStride1{.name = "stride1",
                                     .counts = counts,
                                     .rates = {.fp32 = {.convert = 0.076,
                                                        .store = 0.536,
                                                        .spread = 0.484,
                                                        .tile = 81.3,
                                                        .read = 1.01,
                                                        .terabytes = 3.72,
                                                        .microseconds = 14},
                                               .tf32 = {.multiply = 1.02,
                                                        .convert = 0.062,
                                                        .store = 0.451,
                                                        .spread = 0.132,
                                                        .tile = 21,
                                                        .read = 0.341,
                                                        .terabytes = 4.6,
                                                        .microseconds = 2},
                                               .half = {.convert = 0.0732,
                                                        .store = 0.214,
                                                        .spread = 0.089,
                                                        .tile = 71.5,
                                                        .read = 0.453,
                                                        .terabytes = 4.6,
                                                        .microseconds = 2}},
                                     .fuses = fuses,
                                     .gather = stride1_gather};

}  // namespace polyphase::cuda::tensor_core
