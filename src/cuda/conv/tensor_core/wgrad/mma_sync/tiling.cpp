#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr MmaWgradShape kSplitShapes[] = {{2, 4, 1}, {1, 4, 2}};
constexpr MmaWgradShape kWholeShapes[] = {{2, 4, 1}, {1, 4, 2}, {2, 2, 2}};
constexpr int kFarthestWindow = 48;               // positions that shifts of one tile lie apart
constexpr std::int64_t kMostPositions = 1 << 28;  // of a piece times planes, and of a sample
constexpr std::int64_t kLongestSum = 16384;       // positions that the tensor cores add up by themselves
constexpr std::int64_t kLeastSteps = 8;           // of a slice
constexpr std::int64_t kMostChannels = 1 << 27;   // of a side, times planes

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }

MmaWgradSide side_of(const ConvProblem& problem, bool is_y, int planes) {
  MmaWgradSide side{};
  side.planes = is_y ? planes : 1;
  side.channels = static_cast<int>(is_y ? problem.channels_out_per_group() : problem.channels_in_per_group());
  side.length = is_y ? problem.L_out : problem.L_in;
  const std::int64_t blocks = pieces(side.channels, 8);
  side.blocks = static_cast<int>(blocks * side.planes);
  side.step = is_y ? problem.S : 1;
  side.plane_step = is_y ? problem.D : 0;
  side.start = is_y ? -problem.P_l : 0;
  side.by_planes = FastDivide(static_cast<std::uint32_t>(side.planes));
  side.by_blocks = FastDivide(static_cast<std::uint32_t>(blocks));
  return side;
}

/// Shifts that share a window, and the tiles of columns.
void cut_columns(const MmaWgradShape& shape, int parts, MmaWgradSteps& steps) {
  steps.vectors_of_tile = shape.column_warps * mma_columns_of_warp(parts) / 8;
  const int most = std::min(steps.vectors_of_tile, kFarthestWindow / std::max(steps.d, 1) + 1);
  steps.shift_tiles = static_cast<int>(pieces(steps.shifts, most));
  steps.shifts_of_tile = static_cast<int>(pieces(steps.shifts, steps.shift_tiles));
  steps.shift_tiles = static_cast<int>(pieces(steps.shifts, steps.shifts_of_tile));
  steps.vectors = steps.columns.blocks * steps.shifts_of_tile;
  steps.column_tiles = static_cast<int>(pieces(steps.vectors, steps.vectors_of_tile));
  const int touched = (steps.vectors_of_tile + 2 * steps.shifts_of_tile - 2) / steps.shifts_of_tile;
  steps.columns.tile = std::min(steps.columns.blocks, touched);
}

/// As many positions a step as leave three stages, else two.
bool cut_stages(const MmaWgradShape& shape, int parts, int shared_limit, MmaWgradSteps& steps) {
  const int available = shared_limit / shape.blocks_per_sm - (shape.blocks_per_sm > 1 ? 1024 : 0);
  for (const int least : {3, 2}) {
    for (const int positions : {2 * kMmaWgradDepth, kMmaWgradDepth}) {
      steps.step = positions;
      steps.window = positions + (steps.shifts_of_tile - 1) * steps.d;
      steps.row_bytes = parts * steps.rows.tile * positions * 16;
      steps.stage_bytes = steps.row_bytes + parts * steps.columns.tile * steps.window * 16;
      steps.stages = std::min(kMmaWgradStagesMost, available / steps.stage_bytes);
      steps.shared_bytes = steps.stages * steps.stage_bytes;
      if (steps.stages >= least) return true;
    }
  }
  return false;
}

/// The fewest rounds of blocks times what a block takes: its steps, and about six more to begin and to end.
std::int64_t choose_slices(const MmaWgradSteps& steps, std::int64_t slots, std::int64_t most) {
  std::int64_t slices = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t count = 1; count <= most; ++count) {
    const std::int64_t cost = pieces(steps.jobs * count, slots) * (pieces(steps.steps, count) + 6);
    if (cost < least) slices = count, least = cost;
  }
  return slices;
}

/// Pieces of the line and slices of a piece.
bool cut_line(const ConvProblem& problem, const MmaWgradShape& shape, int parts, int sm_count, std::size_t workspace_limit,
              MmaWgradSteps& steps) {
  const auto limit = static_cast<std::int64_t>(std::min<std::size_t>(workspace_limit, std::size_t{1} << 40));
  const int threads = shape.row_warps * shape.column_warps * 32;
  steps.sums = steps.jobs * threads * mma_columns_of_warp(parts) * 2;
  const std::int64_t slice_bytes = steps.sums * 4;
  const std::int64_t of_position = problem.G * (steps.rows.blocks + steps.columns.blocks) * parts * std::int64_t{16};
  const std::int64_t slack = steps.halo + kFarthestWindow + 2 * kMmaWgradDepth;  // places behind a piece
  const std::int64_t most_slices = std::max<std::int64_t>(1, limit / 4 / slice_bytes);
  const std::int64_t for_operands = std::max(limit - most_slices * slice_bytes, std::int64_t{0});
  const int planes = std::max(steps.rows.planes, steps.columns.planes);
  const std::int64_t most = std::min(for_operands / of_position - slack, kMostPositions / planes) / steps.step * steps.step;
  if (most < kLeastSteps * steps.step && most < steps.line) return false;
  steps.pieces = pieces(steps.line, most);
  steps.piece = pieces(pieces(steps.line, steps.pieces), steps.step) * steps.step;
  steps.pieces = pieces(steps.line, steps.piece);
  steps.places = steps.piece + slack;
  steps.steps = steps.piece / steps.step;
  const std::int64_t slots = std::int64_t{sm_count} * shape.blocks_per_sm;
  steps.slices =
      choose_slices(steps, slots, std::min({most_slices, pieces(steps.steps, kLeastSteps), pieces(4 * slots, steps.jobs)}));
  if (parts == 1) steps.slices = std::max(steps.slices, std::min(most_slices, pieces(steps.piece, kLongestSum)));
  steps.steps_of_slice = pieces(steps.steps, steps.slices);
  steps.slices = pieces(steps.steps, steps.steps_of_slice);
  const std::int64_t of_block = problem.G * parts * std::int64_t{16} * steps.places;
  steps.rows_bytes = steps.rows.blocks * of_block;
  steps.columns_bytes = steps.columns.blocks * of_block;
  steps.partial_bytes = steps.slices * slice_bytes;
  return steps.jobs * steps.slices <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

std::span<const MmaWgradShape> mma_wgrad_shapes(int parts) {
  if (parts == 2) return kSplitShapes;
  return kWholeShapes;
}

MmaWgradSteps make_mma_wgrad_steps(const ConvProblem& problem, int shape, bool swapped, int parts, int sm_count,
                                   int shared_limit, std::size_t workspace_limit) {
  MmaWgradSteps steps{};
  const MmaWgradShape& kernel = mma_wgrad_shapes(parts)[static_cast<std::size_t>(shape)];
  const std::int64_t common = std::gcd(problem.S, problem.D), q = problem.S / common, d = problem.D / common;
  const std::int64_t planes = std::min(q, problem.K), shifts = pieces(problem.K, q), halo = (shifts - 1) * d;
  if (problem.L_in + halo > kMostPositions) return steps;
  if (std::max(problem.channels_in_per_group(), problem.channels_out_per_group() * planes) > kMostChannels) return steps;
  steps.shape = shape;
  steps.swapped = swapped;
  steps.q = static_cast<int>(q);
  steps.d = static_cast<int>(d);
  steps.shifts = static_cast<int>(shifts);
  steps.halo = static_cast<int>(halo);
  steps.pitch = problem.L_in + halo;
  steps.line = problem.N * steps.pitch;
  steps.by_pitch = FastDivide(static_cast<std::uint32_t>(steps.pitch));
  steps.rows = side_of(problem, swapped, static_cast<int>(planes));
  steps.columns = side_of(problem, !swapped, static_cast<int>(planes));
  if (swapped) steps.columns.start = -halo;
  steps.rows.tile = 8 * kernel.row_warps;
  steps.row_tiles = static_cast<int>(pieces(steps.rows.blocks, steps.rows.tile));
  cut_columns(kernel, parts, steps);
  steps.jobs = problem.G * steps.row_tiles * steps.column_tiles * steps.shift_tiles;
  if (!cut_stages(kernel, parts, shared_limit, steps) || !cut_line(problem, kernel, parts, sm_count, workspace_limit, steps))
    steps.stages = 0;
  return steps;
}

double mma_wgrad_cycles(const MmaWgradSteps& steps, int parts, int sm_count) {
  const MmaWgradShape& kernel = mma_wgrad_shapes(parts)[static_cast<std::size_t>(steps.shape)];
  const double products = parts == 2 ? 3 : 1;
  const double tile = 64.0 * kernel.row_warps * steps.vectors_of_tile * 8;
  const double multiply = tile * steps.step * products / 1200;  // multiply-adds a cycle
  const double load = steps.stage_bytes / 20.0;                 // bytes a cycle
  const double step = std::max(multiply, load) + 0.3 * std::min(multiply, load);
  const auto slots = static_cast<double>(std::int64_t{sm_count} * kernel.blocks_per_sm);
  const auto blocks = static_cast<double>(steps.jobs * steps.slices);
  const double rounds = std::max(1.0, blocks / slots);
  const double main = rounds * kernel.blocks_per_sm * (static_cast<double>(steps.steps_of_slice) * step + 2500);
  const double passes = static_cast<double>(steps.rows_bytes + steps.columns_bytes) * (parts == 2 ? 2 : 3) / 2000;
  return static_cast<double>(steps.pieces) * (main + passes + 8000) + static_cast<double>(steps.partial_bytes) / 1500;
}

std::optional<MmaWgradSteps> plan_mma_wgrad(const ConvProblem& problem, int parts, int sm_count, int shared_limit,
                                            std::size_t workspace_limit) {
  std::optional<MmaWgradSteps> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t shape = 0; shape < mma_wgrad_shapes(parts).size(); ++shape) {
    for (const bool swapped : {false, true}) {
      const MmaWgradSteps steps =
          make_mma_wgrad_steps(problem, static_cast<int>(shape), swapped, parts, sm_count, shared_limit, workspace_limit);
      if (steps.stages == 0) continue;
      const double cycles = mma_wgrad_cycles(steps, parts, sm_count);
      if (cycles >= least) continue;
      least = cycles;
      best = steps;
    }
  }
  return best;
}

}  // namespace polyphase::cuda::tensor_core
