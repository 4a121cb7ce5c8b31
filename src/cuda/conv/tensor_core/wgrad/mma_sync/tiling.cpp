#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr MmaWgradShape kSplitShapes[] = {{2, 4, 1}, {1, 4, 2}};
constexpr MmaWgradShape kWholeShapes[] = {{2, 4, 1}, {1, 4, 2}, {2, 2, 2}};
constexpr int kFarthestWindow = 48;               // distance in positions between shifts of one tile
constexpr std::int64_t kMostPositions = 1 << 28;  // of a piece times planes, and of a sample
constexpr std::int64_t kLongestSum = 16384;       // positions that the tensor cores accumulate by themselves
constexpr std::int64_t kLeastSteps = 8;           // per slice
constexpr std::int64_t kMostChannels = 1 << 27;   // of a side, times planes

MmaWgradSide side_of(const ConvProblem& problem, bool is_y, int planes) {
  MmaWgradSide side{};
  side.planes = is_y ? planes : 1;
  side.channels = static_cast<int>(is_y ? problem.channels_out_per_group() : problem.channels_in_per_group());
  side.length = is_y ? problem.L_out : problem.L_in;
  const std::int64_t blocks = divide_up(side.channels, 8);
  side.blocks = static_cast<int>(blocks * side.planes);
  side.step = is_y ? problem.S : 1;
  side.plane_step = is_y ? problem.D : 0;
  side.start = is_y ? -problem.P_l : 0;
  side.by_planes = FastDivide(static_cast<std::uint32_t>(side.planes));
  side.by_blocks = FastDivide(static_cast<std::uint32_t>(blocks));
  return side;
}

/// The shifts that share a window, and the tiles of columns.
void cut_columns(const MmaWgradShape& shape, int parts, MmaWgradTiling& tiling) {
  tiling.vectors_of_tile = shape.column_warps * mma_columns_of_warp(parts) / 8;
  const int most = std::min(tiling.vectors_of_tile, kFarthestWindow / std::max(tiling.d, 1) + 1);
  tiling.shift_tiles = static_cast<int>(divide_up(tiling.shifts, most));
  tiling.shifts_of_tile = static_cast<int>(divide_up(tiling.shifts, tiling.shift_tiles));
  tiling.shift_tiles = static_cast<int>(divide_up(tiling.shifts, tiling.shifts_of_tile));
  tiling.vectors = tiling.columns.blocks * tiling.shifts_of_tile;
  tiling.column_tiles = static_cast<int>(divide_up(tiling.vectors, tiling.vectors_of_tile));
  const int touched = (tiling.vectors_of_tile + 2 * tiling.shifts_of_tile - 2) / tiling.shifts_of_tile;
  tiling.columns.tile = std::min(tiling.columns.blocks, touched);
}

/// As many positions per step as leave three stages, else two.
bool cut_stages(const MmaWgradShape& shape, int parts, int shared_limit, MmaWgradTiling& tiling) {
  const int available = shared_limit / shape.blocks_per_sm - (shape.blocks_per_sm > 1 ? 1024 : 0);
  for (const int least : {3, 2}) {
    for (const int positions : {2 * kMmaWgradDepth, kMmaWgradDepth}) {
      tiling.step = positions;
      tiling.window = positions + (tiling.shifts_of_tile - 1) * tiling.d;
      tiling.row_bytes = parts * tiling.rows.tile * positions * 16;
      tiling.stage_bytes = tiling.row_bytes + parts * tiling.columns.tile * tiling.window * 16;
      tiling.stages = std::min(kMmaWgradStagesMost, available / tiling.stage_bytes);
      tiling.shared_bytes = tiling.stages * tiling.stage_bytes;
      if (tiling.stages >= least) return true;
    }
  }
  return false;
}

/// Minimises rounds of blocks times the time of a block: its steps, and about six more to begin and to end.
std::int64_t choose_slices(const MmaWgradTiling& tiling, std::int64_t slots, std::int64_t most) {
  std::int64_t slices = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t count = 1; count <= most; ++count) {
    const std::int64_t cost = divide_up(tiling.jobs * count, slots) * (divide_up(tiling.steps, count) + 6);
    if (cost < least) slices = count, least = cost;
  }
  return slices;
}

/// The pieces of the line and the slices of a piece.
bool cut_line(const ConvProblem& problem, const MmaWgradShape& shape, int parts, int sm_count, std::size_t workspace_limit,
              MmaWgradTiling& tiling) {
  const auto limit = static_cast<std::int64_t>(std::min<std::size_t>(workspace_limit, std::size_t{1} << 40));
  const int threads = shape.row_warps * shape.column_warps * 32;
  tiling.sums = tiling.jobs * threads * mma_columns_of_warp(parts) * 2;
  const std::int64_t slice_bytes = tiling.sums * 4;
  const std::int64_t of_position = problem.G * (tiling.rows.blocks + tiling.columns.blocks) * parts * std::int64_t{16};
  const std::int64_t slack = tiling.halo + kFarthestWindow + 2 * kMmaWgradDepth;  // places after a piece
  const std::int64_t most_slices = std::max<std::int64_t>(1, limit / 4 / slice_bytes);
  const std::int64_t for_operands = std::max(limit - most_slices * slice_bytes, std::int64_t{0});
  const int planes = std::max(tiling.rows.planes, tiling.columns.planes);
  const std::int64_t most = std::min(for_operands / of_position - slack, kMostPositions / planes) / tiling.step * tiling.step;
  if (most < kLeastSteps * tiling.step && most < tiling.line) return false;
  tiling.pieces = divide_up(tiling.line, most);
  tiling.piece = divide_up(divide_up(tiling.line, tiling.pieces), tiling.step) * tiling.step;
  tiling.pieces = divide_up(tiling.line, tiling.piece);
  tiling.places = tiling.piece + slack;
  tiling.steps = tiling.piece / tiling.step;
  const std::int64_t slots = std::int64_t{sm_count} * shape.blocks_per_sm;
  tiling.slices = choose_slices(
      tiling, slots, std::min({most_slices, divide_up(tiling.steps, kLeastSteps), divide_up(4 * slots, tiling.jobs)}));
  if (parts == 1) tiling.slices = std::max(tiling.slices, std::min(most_slices, divide_up(tiling.piece, kLongestSum)));
  tiling.steps_of_slice = divide_up(tiling.steps, tiling.slices);
  tiling.slices = divide_up(tiling.steps, tiling.steps_of_slice);
  const std::int64_t of_block = problem.G * parts * std::int64_t{16} * tiling.places;
  tiling.rows_bytes = tiling.rows.blocks * of_block;
  tiling.columns_bytes = tiling.columns.blocks * of_block;
  tiling.partial_bytes = tiling.slices * slice_bytes;
  return tiling.jobs * tiling.slices <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

std::span<const MmaWgradShape> mma_wgrad_shapes(int parts) {
  if (parts == 2) return kSplitShapes;
  return kWholeShapes;
}

MmaWgradTiling make_mma_wgrad_tiling(const ConvProblem& problem, int shape, bool swapped, int parts, int sm_count,
                                     int shared_limit, std::size_t workspace_limit) {
  MmaWgradTiling tiling{};
  const MmaWgradShape& kernel = mma_wgrad_shapes(parts)[static_cast<std::size_t>(shape)];
  const std::int64_t common = std::gcd(problem.S, problem.D), q = problem.S / common, d = problem.D / common;
  const std::int64_t planes = std::min(q, problem.K), shifts = divide_up(problem.K, q), halo = (shifts - 1) * d;
  if (problem.L_in + halo > kMostPositions) return tiling;
  if (std::max(problem.channels_in_per_group(), problem.channels_out_per_group() * planes) > kMostChannels) return tiling;
  tiling.shape = shape;
  tiling.swapped = swapped;
  tiling.q = static_cast<int>(q);
  tiling.d = static_cast<int>(d);
  tiling.shifts = static_cast<int>(shifts);
  tiling.halo = static_cast<int>(halo);
  tiling.pitch = problem.L_in + halo;
  tiling.line = problem.N * tiling.pitch;
  tiling.by_pitch = FastDivide(static_cast<std::uint32_t>(tiling.pitch));
  tiling.rows = side_of(problem, swapped, static_cast<int>(planes));
  tiling.columns = side_of(problem, !swapped, static_cast<int>(planes));
  if (swapped) tiling.columns.start = -halo;
  tiling.rows.tile = 8 * kernel.row_warps;
  tiling.row_tiles = static_cast<int>(divide_up(tiling.rows.blocks, tiling.rows.tile));
  cut_columns(kernel, parts, tiling);
  tiling.jobs = problem.G * tiling.row_tiles * tiling.column_tiles * tiling.shift_tiles;
  if (!cut_stages(kernel, parts, shared_limit, tiling) || !cut_line(problem, kernel, parts, sm_count, workspace_limit, tiling))
    tiling.stages = 0;
  return tiling;
}

double mma_wgrad_cycles(const MmaWgradTiling& tiling, int parts, int sm_count) {
  const MmaWgradShape& kernel = mma_wgrad_shapes(parts)[static_cast<std::size_t>(tiling.shape)];
  const double products = parts == 2 ? 3 : 1;
  const double tile = 64.0 * kernel.row_warps * tiling.vectors_of_tile * 8;
  const double multiply = tile * tiling.step * products / 1200;  // multiply-adds per cycle
  const double load = tiling.stage_bytes / 20.0;                 // bytes per cycle
  const double step = std::max(multiply, load) + 0.3 * std::min(multiply, load);
  const auto slots = static_cast<double>(std::int64_t{sm_count} * kernel.blocks_per_sm);
  const auto blocks = static_cast<double>(tiling.jobs * tiling.slices);
  const double rounds = std::max(1.0, blocks / slots);
  const double main = rounds * kernel.blocks_per_sm * (static_cast<double>(tiling.steps_of_slice) * step + 2500);
  const double passes = static_cast<double>(tiling.rows_bytes + tiling.columns_bytes) * (parts == 2 ? 2 : 3) / 2000;
  return static_cast<double>(tiling.pieces) * (main + passes + 8000) + static_cast<double>(tiling.partial_bytes) / 1500;
}

std::optional<MmaWgradTiling> plan_mma_wgrad(const ConvProblem& problem, int parts, int sm_count, int shared_limit,
                                             std::size_t workspace_limit) {
  std::optional<MmaWgradTiling> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t shape = 0; shape < mma_wgrad_shapes(parts).size(); ++shape) {
    for (const bool swapped : {false, true}) {
      const MmaWgradTiling tiling =
          make_mma_wgrad_tiling(problem, static_cast<int>(shape), swapped, parts, sm_count, shared_limit, workspace_limit);
      if (tiling.stages == 0) continue;
      const double cycles = mma_wgrad_cycles(tiling, parts, sm_count);
      if (cycles >= least) continue;
      least = cycles;
      best = tiling;
    }
  }
  return best;
}

}  // namespace polyphase::cuda::tensor_core
