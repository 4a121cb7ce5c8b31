#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/tiling.hpp"

#include <algorithm>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kLeastRows = 32, kLeastUnits = 256;
constexpr int kChannelTiles[] = {32, 64, 96, 128};
constexpr std::int64_t kLongest = 1 << 24;       // elements of a row
constexpr std::int64_t kMostTiles = 0x40000000;  // of what is divided by FastDivide

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }
std::int64_t floor_to(std::int64_t a, std::int64_t b) { return (a >= 0 ? a / b : -((-a + b - 1) / b)) * b; }

bool is_for_phases(const ConvProblem& problem, std::int64_t element_bytes) {
  if (problem.S != kPhaseClasses || problem.K != kPhaseClasses * kPhaseTaps || problem.D != 1) return false;
  if (problem.P_l % 4 != 1 || problem.N == 0 || problem.L_in > kLongest || problem.L_out > kLongest) return false;
  return problem.L_in * element_bytes % 16 == 0 && problem.L_out * element_bytes % 16 == 0;
}

}  // namespace

PhaseSteps make_phase_steps(const ConvProblem& problem, int channels, int sm_count, int shared_limit) {
  const auto element_bytes = static_cast<int>(size_of(problem.dtype));
  if (!is_for_phases(problem, element_bytes)) return {};
  PhaseSteps steps{};
  steps.channels = channels;
  const std::int64_t rows = problem.C_in / problem.G, out = problem.C_out / problem.G;
  steps.weight_tiles = problem.G * pieces(out, channels);
  steps.count = static_cast<int>(std::min<std::int64_t>(pieces(rows, kPhaseRows), 1 << 16));
  const std::int64_t weight_bytes = std::int64_t{steps.count} * kPhaseRows * kPhaseClasses * kPhaseTaps * channels * 2;
  steps.stage_bytes = kPhaseRows * phase_vectors(element_bytes) * 16;
  const std::int64_t left = shared_limit - kPhaseBarrierBytes - channels * 4 - weight_bytes;
  if (left < std::int64_t{2} * kPhaseGroups * steps.stage_bytes || steps.weight_tiles > sm_count) return {};
  steps.weight_bytes = static_cast<int>(weight_bytes);
  steps.packed_bytes = steps.weight_tiles * weight_bytes;
  steps.stages = static_cast<int>(std::min<std::int64_t>(kPhaseStagesMost, left / kPhaseGroups / steps.stage_bytes));
  steps.shared_bytes = shared_limit - static_cast<int>(left) + kPhaseGroups * steps.stages * steps.stage_bytes;
  const std::int64_t vector = 16 / element_bytes, first = problem.P_l / kPhaseClasses - (kPhaseTaps - 1);
  steps.first = static_cast<int>(floor_to(first, vector));
  steps.lead = static_cast<int>(first) - steps.first;
  steps.units = pieces(problem.L_out, kPhaseClasses);
  const std::int64_t tiles_of_row = pieces(steps.units, kPhasePositions);
  steps.tiles = problem.N * tiles_of_row;
  if (steps.tiles >= kMostTiles) return {};
  const std::int64_t copies = std::min(sm_count / steps.weight_tiles, pieces(steps.tiles, kPhaseGroups));
  steps.grid = static_cast<unsigned>(copies * steps.weight_tiles);
  steps.by_tiles_of_row = FastDivide(static_cast<std::uint32_t>(tiles_of_row));
  steps.by_weight_tiles = FastDivide(static_cast<std::uint32_t>(steps.weight_tiles));
  steps.by_channel_tiles = FastDivide(static_cast<std::uint32_t>(steps.weight_tiles / problem.G));
  return steps;
}

PhaseSteps best_phase_steps(const ConvProblem& problem, int sm_count, int shared_limit) {
  PhaseSteps best{};
  if (problem.C_in / problem.G < kLeastRows || problem.L_out / kPhaseClasses < kLeastUnits) return best;
  for (const int channels : kChannelTiles) {
    const PhaseSteps steps = make_phase_steps(problem, channels, sm_count, shared_limit);
    if (steps.count != 0 && (best.count == 0 || steps.weight_tiles < best.weight_tiles)) best = steps;
  }
  return best;
}

}  // namespace polyphase::cuda::tensor_core
