#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/tiling.hpp"

#include <algorithm>

#include "cuda/conv/rounding.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kLeastRows = 32, kLeastUnits = 256;
constexpr int kChannelTiles[] = {32, 64, 96, 128}, kMostChannelsOfTwoParts = 64;
constexpr std::int64_t kLongest = 1 << 24;       // elements per row
constexpr std::int64_t kMostTiles = 0x40000000;  // limit for numbers divided by FastDivide

bool is_for_phased2(const ConvProblem& problem, std::int64_t element_bytes) {
  if (problem.S != kPhased2Classes || problem.K != kPhased2Classes * kPhased2Taps || problem.D != 1) return false;
  if (problem.P_l % 4 != 1 || problem.N == 0 || problem.L_in > kLongest || problem.L_out > kLongest) return false;
  return problem.L_in * element_bytes % 16 == 0 && problem.L_out * element_bytes % 16 == 0;
}

}  // namespace

Phased2Tiling make_phased2_tiling(const ConvProblem& problem, int channels, int parts, int sm_count, int shared_limit) {
  const auto element_bytes = static_cast<int>(size_of(problem.dtype));
  if (!is_for_phased2(problem, element_bytes)) return {};
  Phased2Tiling tiling{};
  tiling.channels = channels, tiling.parts = parts;
  const std::int64_t rows = problem.C_in / problem.G, out = problem.C_out / problem.G;
  if (parts == 2 && (channels > kMostChannelsOfTwoParts || rows * kPhased2Taps > kChainMost * 16)) return {};
  tiling.weight_tiles = problem.G * divide_up(out, channels);
  tiling.count = static_cast<int>(std::min<std::int64_t>(divide_up(rows, kPhased2Rows), 1 << 16));
  const std::int64_t weight_bytes =
      std::int64_t{tiling.count} * kPhased2Rows * kPhased2Classes * kPhased2Taps * channels * 2 * parts;
  tiling.stage_bytes = kPhased2Rows * phased2_vectors(element_bytes) * 16;
  const std::int64_t left = shared_limit - kPhased2BarrierBytes - channels * 4 - weight_bytes;
  if (left < std::int64_t{2} * kPhased2Groups * tiling.stage_bytes || tiling.weight_tiles > sm_count) return {};
  tiling.weight_bytes = static_cast<int>(weight_bytes);
  tiling.packed_bytes = tiling.weight_tiles * weight_bytes;
  tiling.stages = static_cast<int>(std::min<std::int64_t>(kPhased2StagesMost, left / kPhased2Groups / tiling.stage_bytes));
  tiling.shared_bytes = shared_limit - static_cast<int>(left) + kPhased2Groups * tiling.stages * tiling.stage_bytes;
  const std::int64_t vector = 16 / element_bytes, first = problem.P_l / kPhased2Classes - (kPhased2Taps - 1);
  tiling.first = static_cast<int>(floor_to(first, vector));
  tiling.lead = static_cast<int>(first) - tiling.first;
  tiling.units = divide_up(problem.L_out, kPhased2Classes);
  const std::int64_t tiles_of_row = divide_up(tiling.units, kPhased2Positions);
  tiling.tiles = problem.N * tiles_of_row;
  if (tiling.tiles >= kMostTiles) return {};
  const std::int64_t copies = std::min(sm_count / tiling.weight_tiles, divide_up(tiling.tiles, kPhased2Groups));
  tiling.grid = static_cast<unsigned>(copies * tiling.weight_tiles);
  tiling.by_tiles_of_row = FastDivide(static_cast<std::uint32_t>(tiles_of_row));
  tiling.by_weight_tiles = FastDivide(static_cast<std::uint32_t>(tiling.weight_tiles));
  tiling.by_channel_tiles = FastDivide(static_cast<std::uint32_t>(tiling.weight_tiles / problem.G));
  return tiling;
}

Phased2Tiling best_phased2_tiling(const ConvProblem& problem, int parts, int sm_count, int shared_limit) {
  Phased2Tiling best{};
  if (problem.C_in / problem.G < kLeastRows || problem.L_out / kPhased2Classes < kLeastUnits) return best;
  for (const int channels : kChannelTiles) {
    const Phased2Tiling tiling = make_phased2_tiling(problem, channels, parts, sm_count, shared_limit);
    if (tiling.count != 0 && (best.count == 0 || tiling.weight_tiles < best.weight_tiles)) best = tiling;
  }
  return best;
}

}  // namespace polyphase::cuda::tensor_core
