#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kLongest = 1 << 24;       // elements of a row
constexpr std::int64_t kMostTiles = 0x40000000;  // of what is divided by FastDivide
constexpr std::int64_t kMostRows = 0x7fffffff;   // of the source: coordinates of a box

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }
std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// Output S*u + r has element u + s of its rows times tap r + P_l - S*s.
struct Reach {
  std::int64_t least, most;  // s
  std::int64_t from, until;  // classes r that have the most from `from` on, the least before `until`
};
Reach reach_of(const ConvProblem& problem) {
  const std::int64_t S = problem.S, P = problem.P_l, K = problem.K;
  Reach reach{};
  reach.least = -floor_of(K - 1 - P, S);
  reach.most = floor_of(S - 1 + P, S);
  reach.from = std::max<std::int64_t>(0, S * reach.most - P);
  reach.until = std::min(S, K - P + S * reach.least);
  return reach;
}

/// Which of kUnitPatterns, if any.
std::optional<int> pattern_of(const ConvProblem& problem, const Reach& reach) {
  const std::int64_t S = problem.S;
  if (4 * reach.from % S != 0 || 4 * reach.until % S != 0) return std::nullopt;
  const int from = static_cast<int>(4 * reach.from / S), until = static_cast<int>(4 * reach.until / S % 4);
  const std::int64_t middle = reach.most - reach.least + 1 - (from > 0 ? 1 : 0) - (until > 0 ? 1 : 0);
  if (middle < 0 || middle > 64) return std::nullopt;
  const auto* found =
      std::find(std::begin(kUnitPatterns), std::end(kUnitPatterns), UnitPattern{from, static_cast<int>(middle), until});
  if (found == std::end(kUnitPatterns)) return std::nullopt;
  return static_cast<int>(found - std::begin(kUnitPatterns));
}

bool is_for_units(const ConvProblem& problem) {
  if ((size_of(problem.dtype) != 2 && problem.dtype != DType::f32) || (problem.S != 4 && problem.S != 8) || problem.D != 1 ||
      problem.K < problem.S)
    return false;
  if (problem.N == 0 || problem.L_in > kLongest || problem.L_out > kLongest || problem.N * problem.C_in > kMostRows)
    return false;
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(problem.dtype));
  return problem.L_in % vector == 0 && problem.L_out % std::max(vector, problem.S) == 0 &&
         problem.C_in / problem.G % (2 * kUnitRows) == 0;
}

}  // namespace

UnitSteps make_unit_steps(const ConvProblem& problem, int sm_count, int shared_limit) {
  if (!is_for_units(problem)) return {};
  const Reach reach = reach_of(problem);
  const std::optional<int> pattern = pattern_of(problem, reach);
  // Words of two neighbours begin with the one behind a unit's first.
  if (!pattern || reach.least % 2 == 0) return {};
  UnitSteps steps{};
  steps.pattern = *pattern;
  const bool is_split = problem.dtype == DType::f32;
  // With few neighbours each stored number has few products: f32 takes longer so than by the wide form (hifigan_up1 0.203 ms
  // for 0.202, dac_up2 0.213 for 0.187).
  if (is_split && kUnitPatterns[*pattern].middle < 2) return {};
  const int columns = is_split ? kSplitUnitColumns : kUnitColumns, width = is_split ? kSplitUnitWidth : kUnitWidth;
  const int vector = is_split ? 4 : 8;
  steps.channels = static_cast<int>(columns / problem.S);
  const std::int64_t rows = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const std::int64_t channel_tiles = pieces(out, steps.channels);
  steps.first_shift = static_cast<int>(reach.least);
  steps.first = static_cast<int>(floor_of(reach.least, vector) * vector);
  steps.lead = steps.first_shift - steps.first;
  const UnitPattern& own = kUnitPatterns[steps.pattern];
  const int stage_bytes = is_split ? split_unit_stage_bytes(own) : unit_stage_bytes(own);
  const int fixed = is_split ? kSplitUnitBarrierBytes + kSplitUnitRaws * kSplitUnitRawBytes : kUnitBarrierBytes;
  steps.stages = std::min((shared_limit - fixed) / stage_bytes, kUnitStagesMost);
  if (steps.lead + kUnitPositions + own.shifts() - 1 > width || steps.stages < 3) return {};
  steps.shared_bytes = fixed + steps.stages * stage_bytes;
  steps.units = problem.L_out / problem.S;
  const std::int64_t tiles_of_row = pieces(steps.units, kUnitPositions);
  steps.tiles = problem.N * tiles_of_row;
  steps.column_tiles = problem.G * channel_tiles;
  steps.turns = steps.tiles * steps.column_tiles;
  if (steps.tiles >= kMostTiles || steps.turns >= kMostTiles || rows > kLongest) return {};
  steps.grid = static_cast<unsigned>(std::min<std::int64_t>(steps.turns, sm_count));
  steps.by_tiles_of_row = FastDivide(static_cast<std::uint32_t>(tiles_of_row));
  steps.by_column_tiles = FastDivide(static_cast<std::uint32_t>(steps.column_tiles));
  steps.by_channel_tiles = FastDivide(static_cast<std::uint32_t>(channel_tiles));
  const int row_bytes = is_split ? split_unit_columns(own) * 4 : own.columns() * 2;
  steps.packed_bytes = steps.column_tiles * rows * row_bytes;
  steps.count = static_cast<int>(rows / kUnitRows);
  return steps;
}

}  // namespace polyphase::cuda::tensor_core
