#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/tiling.hpp"

#include <algorithm>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr MmaShape kSplitShapes[] = {{1, 4, 2}, {1, 8, 1}};
constexpr MmaShape kWholeShapes[] = {{1, 4, 2}, {2, 2, 2}};

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

/// Rows that are filled by a channel's classes, side by side or each with a run of positions behind it that no tap reaches.
bool is_interleaved(const TapGemm& form) {
  const bool side_by_side = form.classes == 1 || (form.out_class_step == form.out_gcd && form.phase_classes == form.classes);
  return side_by_side && form.out_stride == form.classes * form.out_gcd && form.out_gcd <= 8 &&
         kWideSubtile % form.classes == 0;
}

/// Shared memory for the sums of `warps` of the warps along positions, as MmaStore lays them.
int staging_bytes(const TapGemm& form, const WideSteps& steps, const MmaShape& shape, int element_bytes, int warps) {
  const std::int64_t positions = warps * (steps.tile_positions / shape.position_warps);
  const std::int64_t rows = steps.interleaved ? steps.usable / form.classes : kWideSubtile;
  const std::int64_t run = steps.interleaved ? form.out_stride * positions : positions;
  return static_cast<int>(shape.column_warps * rows * (run * element_bytes + 16));
}

}  // namespace

std::span<const MmaShape> mma_shapes(int parts) {
  if (parts == 2) return kSplitShapes;
  return kWholeShapes;
}

int mma_warps_of_pass(const TapGemm& form, const WideSteps& steps, const MmaShape& shape, int element_bytes) {
  int warps = shape.position_warps;
  while (warps > 1 && staging_bytes(form, steps, shape, element_bytes, warps) > steps.shared_bytes) warps /= 2;
  return warps;
}

WideSteps make_mma_steps(const TapGemm& form, const MmaShape& shape, int parts, int element_bytes, int slices, int sm_count,
                         int shared_limit) {
  const int positions = shape.position_warps * mma_positions_of_warp(parts);
  const bool halves = shape.column_warps == 1;  // of the positions, as two tiles of the source
  const WideShape wide{halves ? positions / kWideGroups : positions, halves, parts, shape.blocks_per_sm};
  // What wide keeps for other things is given back.
  const int other = kWideFixedBytes;
  const int available = shared_limit / shape.blocks_per_sm - (shape.blocks_per_sm > 1 ? 1024 : 0);
  WideSteps steps = make_wide_steps(form, wide, slices, sm_count, shared_limit + shape.blocks_per_sm * other);
  if (steps.count == 0) return {};
  steps.stages = std::min(steps.stages, kMmaStagesMost);
  steps.interleaved = steps.interleaved || is_interleaved(form);
  steps.shared_bytes = steps.stages * (steps.source_bytes + steps.weight_bytes);
  const int most = std::max(steps.shared_bytes, available * 3 / 4);
  int warps = shape.position_warps;
  while (warps > 1 && staging_bytes(form, steps, shape, element_bytes, warps) > most) warps /= 2;
  steps.shared_bytes = std::max(steps.shared_bytes, staging_bytes(form, steps, shape, element_bytes, warps));
  return steps.shared_bytes <= available ? steps : WideSteps{};
}

double mma_cycles(const TapGemm& form, const WideSteps& steps, const MmaShape& shape, int sm_count) {
  const double products = steps.source.parts == 2 ? 3 : 1;
  const double depth =
      static_cast<double>(steps.row_steps_of_slice) * kWideBlocks * kWideRows * static_cast<double>(form.planes * form.taps);
  const double tile = static_cast<double>(steps.tile_columns) * steps.tile_positions;
  const bool alone = shape.blocks_per_sm == 1, splits = steps.source.parts == 2;
  // Fitted on an H200: multiply-adds, numbers and bytes a cycle. A block alone waits for its barriers; warps that share columns
  // share less of what is copied, and store longer runs.
  const double product = tile * depth * products / 1200 * (alone ? 1.12 : !splits && shape.column_warps == 1 ? 1.025 : 1.0);
  const double store = tile / 5 * (1 + 32.0 / steps.tile_positions);
  const auto count = static_cast<double>(steps.row_steps_of_slice) * steps.plane_steps * steps.tap_steps;
  const double copies = count * (steps.source_bytes + steps.weight_bytes) / 64;
  const double reduce = steps.slices == 1 ? 0 : 5000 + static_cast<double>(steps.partial_bytes) / 1500;
  const std::int64_t slots = std::int64_t{sm_count} * shape.blocks_per_sm;
  // Blocks on one multiprocessor share its tensor cores, but hide each other's stores. A last wave that is not full is quicker.
  const auto full = static_cast<double>(steps.blocks / slots * shape.blocks_per_sm);
  const auto rest = static_cast<double>(pieces(steps.blocks % slots, sm_count));
  return (full + rest) * (product + copies + store * (alone ? 1.0 : 0.7)) + 2500 + reduce;
}

}  // namespace polyphase::cuda::tensor_core
