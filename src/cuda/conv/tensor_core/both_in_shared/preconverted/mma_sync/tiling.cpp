#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/tiling.hpp"

#include <algorithm>

#include "cuda/conv/rounding.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr MmaShape kSplitShapes[] = {{1, 4, 2}, {1, 8, 1}};
constexpr MmaShape kWholeShapes[] = {{1, 4, 2}, {2, 2, 2}};

/// Whether a channel's classes fill its rows, either interleaved or each followed by positions that no tap reaches.
bool is_interleaved(const TapGemm& gemm) {
  const bool side_by_side = gemm.classes == 1 || (gemm.out_class_step == gemm.out_gcd && gemm.phase_classes == gemm.classes);
  return side_by_side && gemm.out_stride == gemm.classes * gemm.out_gcd && gemm.out_gcd <= 8 &&
         kPreconvertedSubtile % gemm.classes == 0;
}

/// Shared memory for the sums of `warps` of the warps along positions, in the layout of MmaStore.
int staging_bytes(const TapGemm& gemm, const PreconvertedTiling& tiling, const MmaShape& shape, int element_bytes, int warps) {
  const std::int64_t positions = warps * (tiling.tile_positions / shape.position_warps);
  const std::int64_t rows = tiling.interleaved ? tiling.usable / gemm.classes : kPreconvertedSubtile;
  const std::int64_t run = tiling.interleaved ? gemm.out_stride * positions : positions;
  return static_cast<int>(shape.column_warps * rows * (run * element_bytes + 16));
}

}  // namespace

std::span<const MmaShape> mma_shapes(int parts) {
  if (parts == 2) return kSplitShapes;
  return kWholeShapes;
}

int mma_warps_of_pass(const TapGemm& gemm, const PreconvertedTiling& tiling, const MmaShape& shape, int element_bytes) {
  int warps = shape.position_warps;
  while (warps > 1 && staging_bytes(gemm, tiling, shape, element_bytes, warps) > tiling.shared_bytes) warps /= 2;
  return warps;
}

PreconvertedTiling make_mma_tiling(const TapGemm& gemm, const MmaShape& shape, int parts, int element_bytes, int slices,
                                   int sm_count, int shared_limit) {
  const int positions = shape.position_warps * mma_positions_of_warp(parts);
  const bool halves = shape.column_warps == 1;  // of the positions, as two tiles of the source
  const PreconvertedShape wide{halves ? positions / kPreconvertedGroups : positions, halves, parts, shape.blocks_per_sm};
  // The wgmma kernel reserves this memory; this kernel does not need it.
  const int other = kPreconvertedFixedBytes;
  const int available = shared_limit / shape.blocks_per_sm - (shape.blocks_per_sm > 1 ? 1024 : 0);
  PreconvertedTiling tiling =
      make_preconverted_tiling(gemm, wide, slices, sm_count, shared_limit + shape.blocks_per_sm * other);
  if (tiling.count == 0) return {};
  tiling.stages = std::min(tiling.stages, kMmaStagesMost);
  tiling.interleaved = tiling.interleaved || is_interleaved(gemm);
  tiling.shared_bytes = tiling.stages * (tiling.source_bytes + tiling.weight_bytes);
  const int most = std::max(tiling.shared_bytes, available * 3 / 4);
  int warps = shape.position_warps;
  while (warps > 1 && staging_bytes(gemm, tiling, shape, element_bytes, warps) > most) warps /= 2;
  tiling.shared_bytes = std::max(tiling.shared_bytes, staging_bytes(gemm, tiling, shape, element_bytes, warps));
  return tiling.shared_bytes <= available ? tiling : PreconvertedTiling{};
}

double mma_cycles(const TapGemm& gemm, const PreconvertedTiling& tiling, const MmaShape& shape, int sm_count) {
  const double products = tiling.source.parts == 2 ? 3 : 1;
  const double depth = static_cast<double>(tiling.row_steps_of_slice) * kPreconvertedBlocks * kPreconvertedRows *
                       static_cast<double>(gemm.planes * gemm.taps);
  const double tile = static_cast<double>(tiling.tile_columns) * tiling.tile_positions;
  const bool alone = shape.blocks_per_sm == 1, splits = tiling.source.parts == 2;
  // Fitted on an H200: multiply-adds, numbers and bytes per cycle. A block that is alone on a multiprocessor waits at its
  // barriers. Warps that share columns share less of the copied data and store longer runs.
  const double product = tile * depth * products / 1200 * (alone ? 1.12 : !splits && shape.column_warps == 1 ? 1.025 : 1.0);
  const double store = tile / 5 * (1 + 32.0 / tiling.tile_positions);
  const auto count = static_cast<double>(tiling.row_steps_of_slice) * tiling.plane_steps * tiling.tap_steps;
  const double copies = count * (tiling.source_bytes + tiling.weight_bytes) / 64;
  const double reduce = tiling.slices == 1 ? 0 : 5000 + static_cast<double>(tiling.partial_bytes) / 1500;
  const std::int64_t slots = std::int64_t{sm_count} * shape.blocks_per_sm;
  // Blocks on one multiprocessor share its tensor cores but hide each other's stores. A partial last wave takes less time.
  const auto full = static_cast<double>(tiling.blocks / slots * shape.blocks_per_sm);
  const auto rest = static_cast<double>(divide_up(tiling.blocks % slots, sm_count));
  return (full + rest) * (product + copies + store * (alone ? 1.0 : 0.7)) + 2500 + reduce;
}

}  // namespace polyphase::cuda::tensor_core
