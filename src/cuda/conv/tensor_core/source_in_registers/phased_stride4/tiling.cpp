#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kLongest = 1 << 24;       // elements per row
constexpr std::int64_t kMostTiles = 0x40000000;  // limit for numbers divided by FastDivide
constexpr std::int64_t kMostRows = 0x7fffffff;   // of the source: coordinates of a box

/// Output S*u + r is the sum over s of element u + s of its rows times tap r + P_l - S*s.
struct Reach {
  std::int64_t least, most;  // s
  std::int64_t from, until;  // classes r that have the greatest s (from `from` on) and the least (before `until`)
};
Reach reach_of(const ConvProblem& problem) {
  const std::int64_t S = problem.S, P = problem.P_l, K = problem.K;
  Reach reach{};
  reach.least = -floor_divide(K - 1 - P, S);
  reach.most = floor_divide(S - 1 + P, S);
  reach.from = std::max<std::int64_t>(0, S * reach.most - P);
  reach.until = std::min(S, K - P + S * reach.least);
  return reach;
}

/// The index in kPhased4Patterns, if any.
std::optional<int> pattern_of(const ConvProblem& problem, const Reach& reach) {
  const std::int64_t S = problem.S;
  if (4 * reach.from % S != 0 || 4 * reach.until % S != 0) return std::nullopt;
  const int from = static_cast<int>(4 * reach.from / S), until = static_cast<int>(4 * reach.until / S % 4);
  const std::int64_t middle = reach.most - reach.least + 1 - (from > 0 ? 1 : 0) - (until > 0 ? 1 : 0);
  if (middle < 0 || middle > 64) return std::nullopt;
  const auto* found = std::find(std::begin(kPhased4Patterns), std::end(kPhased4Patterns),
                                Phased4Pattern{from, static_cast<int>(middle), until});
  if (found == std::end(kPhased4Patterns)) return std::nullopt;
  return static_cast<int>(found - std::begin(kPhased4Patterns));
}

bool is_for_phased4(const ConvProblem& problem) {
  if ((size_of(problem.dtype) != 2 && problem.dtype != DType::f32) || (problem.S != 4 && problem.S != 8) || problem.D != 1 ||
      problem.K < problem.S)
    return false;
  if (problem.N == 0 || problem.L_in > kLongest || problem.L_out > kLongest || problem.N * problem.C_in > kMostRows)
    return false;
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(problem.dtype));
  return problem.L_in % vector == 0 && problem.L_out % std::max(vector, problem.S) == 0 &&
         problem.C_in / problem.G % (2 * kPhased4Rows) == 0;
}

}  // namespace

Phased4Tiling make_phased4_tiling(const ConvProblem& problem, int sm_count, int shared_limit) {
  if (!is_for_phased4(problem)) return {};
  const Reach reach = reach_of(problem);
  const std::optional<int> pattern = pattern_of(problem, reach);
  // Words of two neighbours begin with the one after a unit's first.
  if (!pattern || reach.least % 2 == 0) return {};
  Phased4Tiling tiling{};
  tiling.pattern = *pattern;
  const bool is_split = problem.dtype == DType::f32;
  // With few neighbours each stored number has few products, and f32 is slower than the preconverted kernel (hifigan_up1 0.203
  // against 0.202 ms, dac_up2 0.213 against 0.187 ms).
  if (is_split && kPhased4Patterns[*pattern].middle < 2) return {};
  const int columns = is_split ? kPhased4F32Columns : kPhased4Columns, width = is_split ? kPhased4F32Width : kPhased4Width;
  const int vector = is_split ? 4 : 8;
  tiling.channels = static_cast<int>(columns / problem.S);
  const std::int64_t rows = problem.C_in / problem.G, out = problem.C_out / problem.G;
  const std::int64_t channel_tiles = divide_up(out, tiling.channels);
  tiling.first_shift = static_cast<int>(reach.least);
  tiling.first = static_cast<int>(floor_divide(reach.least, vector) * vector);
  tiling.lead = tiling.first_shift - tiling.first;
  const Phased4Pattern& own = kPhased4Patterns[tiling.pattern];
  const int stage_bytes = is_split ? f32_unit_stage_bytes(own) : unit_stage_bytes(own);
  const int fixed = is_split ? kPhased4F32BarrierBytes + kPhased4F32Raws * kPhased4F32RawBytes : kPhased4BarrierBytes;
  tiling.stages = std::min((shared_limit - fixed) / stage_bytes, kPhased4StagesMost);
  if (tiling.lead + kPhased4Positions + own.shifts() - 1 > width || tiling.stages < 3) return {};
  tiling.shared_bytes = fixed + tiling.stages * stage_bytes;
  tiling.units = problem.L_out / problem.S;
  const std::int64_t tiles_of_row = divide_up(tiling.units, kPhased4Positions);
  tiling.tiles = problem.N * tiles_of_row;
  tiling.column_tiles = problem.G * channel_tiles;
  tiling.turns = tiling.tiles * tiling.column_tiles;
  if (tiling.tiles >= kMostTiles || tiling.turns >= kMostTiles || rows > kLongest) return {};
  tiling.grid = static_cast<unsigned>(std::min<std::int64_t>(tiling.turns, sm_count));
  tiling.by_tiles_of_row = FastDivide(static_cast<std::uint32_t>(tiles_of_row));
  tiling.by_column_tiles = FastDivide(static_cast<std::uint32_t>(tiling.column_tiles));
  tiling.by_channel_tiles = FastDivide(static_cast<std::uint32_t>(channel_tiles));
  const int row_bytes = is_split ? f32_unit_columns(own) * 4 : own.columns() * 2;
  tiling.packed_bytes = tiling.column_tiles * rows * row_bytes;
  tiling.count = static_cast<int>(rows / kPhased4Rows);
  return tiling;
}

}  // namespace polyphase::cuda::tensor_core
