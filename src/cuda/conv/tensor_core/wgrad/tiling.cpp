#include "cuda/conv/tensor_core/wgrad/tiling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <span>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/plan_cache.hpp"
#include "cuda/conv/rounding.hpp"
#include "cuda/conv/tensor_core/wgrad/tiles.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kItemBytes = 16;
constexpr int kWideBytes = 4;     // the wide kernel is of f32
constexpr int kMostItems = 6144;  // of a tile, of both sides
constexpr std::int64_t kWidestHalo = 96;
constexpr int kRowsStaticBytes = 1024;            // barriers, and what a block looks up
constexpr int kRowsAlignment = 1024;              // of the swizzle
constexpr std::int64_t kLongestReach = 8192;      // of a row: more never fits
constexpr std::int64_t kLongestSum = 16384;       // positions that the tensor cores add up without promotion
constexpr std::int64_t kLongestSplitSum = 32768;  // positions that are added up in f32
// The same in the wide kernel. One product may be far above all others, and each addition rounds to its last place.
constexpr std::int64_t kLongestWideSum = 8192;

/// The operand of x or of y, before tiling.
WgradSide side_of(const ConvProblem& problem, bool is_y, int planes, int d) {
  WgradSide side{};
  side.planes = is_y ? planes : 1;
  side.channels = static_cast<int>(is_y ? problem.channels_out_per_group() : problem.channels_in_per_group());
  side.length = is_y ? problem.L_out : problem.L_in;
  side.blocks = static_cast<int>(divide_up(side.channels, 8) * side.planes);
  side.step = is_y ? problem.S : 1;
  side.plane_step = is_y ? problem.D : 0;
  side.start = is_y ? -problem.P_l : 0;
  side.start_per_shift = is_y ? problem.S * d : 0;
  return side;
}

void tile_side(WgradSide& side, int tile, std::int64_t window) {
  side.tile = tile;
  side.window = static_cast<int>(window);
  // Neighbouring lanes write neighbouring planes: an odd pitch spreads them over the banks.
  side.pitch = side.planes > 1 ? side.window | 1 : side.window;
  const int planes = std::min(side.planes, tile);
  const std::int64_t items = divide_up(tile, planes) * planes * window;
  side.items = static_cast<int>(divide_up(items, 32) * 32);
  side.by_plane_window = FastDivide(static_cast<std::uint32_t>(planes * side.window));
  side.by_planes = FastDivide(static_cast<std::uint32_t>(planes));
}

int whole(std::int64_t size, std::int64_t piece) { return static_cast<int>(divide_up(size, piece) * piece); }

/// Whether every row of a class has the same offset in 16 bytes, and every group's rows begin with class 0.
bool has_classes(const WgradSide& side, const ConvProblem& problem, int classes) {
  return (problem.N == 1 || problem.G * side.channels % classes == 0) && (problem.G == 1 || side.channels % classes == 0) &&
         side.channels >= classes && side.length < INT32_MAX / 2;
}

/// Numbers of a row that a step needs.
std::int64_t reach_of(const WgradSide& side) { return side.step * (side.window - 1) + (side.planes - 1) * side.plane_step + 1; }

/// How tensor copies load the rows or the columns. Rows whose neighbouring numbers are needed and whose windows begin with a
/// 32-byte sector come in swizzled runs of 128 bytes. Others would touch five sectors for four that way; they come in longer
/// runs, an odd number of 16 bytes each, so that neighbouring rows are in different banks.
WgradRaw raw_of(const WgradSide& side, int bytes, bool is_rows, bool aligned) {
  WgradRaw raw{};
  raw.classes = 16 / static_cast<int>(std::gcd<std::int64_t>(16, side.length * bytes));
  const int tile = side.tile, planes = side.planes;
  const int blocks = tile % planes == 0 ? tile / planes : planes % tile == 0 ? 1 : (tile - 1) / planes + 2;
  raw.rows = static_cast<int>(divide_up(8 * blocks, raw.classes));
  const int unit = 16 / bytes, sector = 32 / bytes;
  raw.is_exact = aligned && raw.classes == 1 && side.start % unit == 0 && side.start_per_shift % unit == 0;
  raw.is_swizzled = is_rows && side.step == 1 && raw.is_exact && side.length % sector == 0 && side.start % sector == 0 &&
                    side.start_per_shift % sector == 0;
  const std::int64_t reach = reach_of(side);
  if (raw.is_swizzled) {
    raw.width = raw.span = 128 / bytes;
    raw.boxes = static_cast<int>(divide_up(reach, raw.width));
    raw.box_bytes = whole(raw.rows * 128, 1024);
  } else if (is_rows) {
    raw.span = reach <= kChunk ? kChunk : 2 * kChunk;
    raw.width = raw.span + unit;
    raw.boxes = static_cast<int>(divide_up(reach, raw.span));
    raw.box_bytes = whole(raw.rows * raw.width * bytes, 128);
  } else {
    const int before = raw.is_exact ? 0 : unit;
    raw.boxes = static_cast<int>(divide_up(reach, 256 - before));
    raw.span = whole(divide_up(reach, raw.boxes), unit);
    raw.width = raw.span + before;
    raw.box_bytes = whole(raw.rows * raw.width * bytes, 128);
  }
  raw.span_log2 = static_cast<int>(std::bit_width(static_cast<unsigned>(raw.span))) - 1;
  raw.class_bytes = raw.boxes * raw.box_bytes;
  raw.bytes = raw.classes * raw.class_bytes;
  raw.arriving = raw.classes * raw.boxes * raw.rows * raw.width * bytes;
  return raw;
}

/// Two positions per item of f32 columns, if every row and window begins at a multiple of 8 bytes.
void pair_items(WgradTiling& tiling, bool aligned) {
  WgradSide& side = tiling.columns;
  if (!aligned || side.step != 1 || side.planes != 1 || side.raw.classes > 2 || side.window % 2 != 0 || side.start % 2 != 0 ||
      tiling.shifts > tiling.shape.shifts)
    return;
  side.in_pairs = true;
  side.items = static_cast<int>(divide_up(std::int64_t{side.tile} * side.window / 2, 32) * 32);
  side.by_plane_window = FastDivide(static_cast<std::uint32_t>(side.window / 2));
}

/// Divides shared memory into rings; leaves no stages where they do not fit.
void divide_memory(WgradTiling& tiling, const ConvProblem& problem, int parts, int bytes, bool aligned, int shared_limit) {
  if (std::max(reach_of(tiling.rows), reach_of(tiling.columns)) > kLongestReach) return;
  tiling.rows.raw = raw_of(tiling.rows, bytes, true, aligned);
  tiling.columns.raw = raw_of(tiling.columns, bytes, false, aligned);
  if (!has_classes(tiling.rows, problem, tiling.rows.raw.classes) ||
      !has_classes(tiling.columns, problem, tiling.columns.raw.classes))
    return;
  if (wgrad_pairs_fit(tiling.shape, parts)) pair_items(tiling, aligned);
  // The tensor cores read whole tiles, whatever of them exists.
  tiling.stage_bytes = parts * (tiling.shape.columns / 8) * tiling.columns.pitch * 16;
  tiling.row_threads = wgrad_row_threads(tiling.shape, parts);
  const int listed = wgrad_listed_items(tiling) * kItemBytes;
  const auto copies_of = [](const WgradRaw& raw) { return raw.classes * raw.boxes; };
  const int fixed = kRowsAlignment + listed + kItemBytes * (copies_of(tiling.rows.raw) + copies_of(tiling.columns.raw));
  const std::int64_t free = shared_limit - kRowsStaticBytes - fixed;
  const auto fits = [&](int rows, int columns, int stages) {
    return std::int64_t{rows} * tiling.rows.raw.bytes + std::int64_t{columns} * tiling.columns.raw.bytes +
               std::int64_t{stages} * tiling.stage_bytes <=
           free;
  };
  int rows = 2, columns = 2, stages = 2;
  if (!fits(rows, columns, stages)) return;
  for (int most = 3; most <= 4; ++most) {
    if (fits(most, columns, stages)) rows = most;
    if (fits(rows, most, stages)) columns = most;
    if (fits(rows, columns, most)) stages = most;
  }
  tiling.rows_stages = rows;
  tiling.columns_stages = columns;
  tiling.stages = stages;
  tiling.shared_bytes = fixed + rows * tiling.rows.raw.bytes + columns * tiling.columns.raw.bytes + stages * tiling.stage_bytes;
}

WgradTiling make_tiling(const ConvProblem& problem, WgradShape shape, bool swapped, int parts, int bytes, bool aligned,
                        int shared_limit) {
  WgradTiling tiling{};
  const std::int64_t common = std::gcd(problem.S, problem.D);
  tiling.shape = shape;
  tiling.swapped = swapped;
  tiling.q = static_cast<int>(problem.S / common);
  tiling.d = static_cast<int>(problem.D / common);
  tiling.shifts = static_cast<int>(divide_up(problem.K, tiling.q));
  const int planes = static_cast<int>(std::min<std::int64_t>(tiling.q, problem.K));
  tiling.rows = side_of(problem, swapped, planes, tiling.d);
  tiling.columns = side_of(problem, !swapped, planes, tiling.d);
  const bool turns = tiling.rows.blocks <= 8;
  tiling.own = turns ? 0 : 8;
  tiling.chunk = turns ? 2 * kChunk : kChunk;
  const std::int64_t halo = std::int64_t{shape.shifts - 1} * tiling.d;
  if (halo > kWidestHalo) return tiling;  // stages == 0
  tiling.halo = static_cast<int>(halo);
  tiling.shift_step = swapped ? -tiling.d : tiling.d;
  tiling.first_shift_offset = swapped ? tiling.halo : 0;
  if (swapped) tiling.columns.start -= halo;
  tiling.positions = problem.L_in + (swapped ? halo : 0);
  const auto blocks_of = [](const WgradSide& side, int most) { return std::min(side.blocks, most); };
  tile_side(tiling.rows, blocks_of(tiling.rows, turns ? 8 : 16), tiling.chunk);
  tile_side(tiling.columns, blocks_of(tiling.columns, shape.columns / 8), tiling.chunk + halo);
  if (tiling.rows.items + tiling.columns.items > kMostItems) return tiling;
  tiling.row_tiles = static_cast<int>(divide_up(tiling.rows.blocks, tiling.rows.tile));
  tiling.column_tiles = static_cast<int>(divide_up(tiling.columns.blocks, tiling.columns.tile));
  tiling.shift_tiles = static_cast<int>(divide_up(tiling.shifts, shape.shifts));
  tiling.jobs = problem.G * tiling.row_tiles * tiling.column_tiles * tiling.shift_tiles;
  divide_memory(tiling, problem, parts, bytes, aligned, shared_limit);
  return tiling;
}

/// How the positions of tilings are divided.
struct Slicing {
  std::int64_t longest_sum;   // positions between partial sums
  std::int64_t blocks_of_sm;  // at most
};

void cut_slices(WgradTiling& tiling, const ConvProblem& problem, const Slicing& slicing, int sm_count,
                std::size_t partial_limit) {
  tiling.chunks_per_row = divide_up(tiling.positions, tiling.chunk);
  tiling.chunks = problem.N * tiling.chunks_per_row;
  // Enough slices for every SM, none shorter than a few chunks, and no more partial sums than allowed.
  const std::int64_t turns = tiling.own == 0 ? 2 : 1;
  const auto weight_bytes = static_cast<double>(problem.C_in) * static_cast<double>(problem.channels_out_per_group()) *
                            static_cast<double>(problem.K) * 4.0;
  const auto allowed = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(partial_limit) / (weight_bytes * static_cast<double>(turns))));
  // Minimises rounds of blocks times the time of a block: its chunks, and about six more to begin and to end. For a given
  // number of rounds the largest count is best; among counts with equally long blocks, the least.
  const std::int64_t most = std::min(
      {allowed, std::max<std::int64_t>(1, tiling.chunks / 8), divide_up(slicing.blocks_of_sm * sm_count, tiling.jobs)});
  std::int64_t slices = 1, least = 0;
  for (std::int64_t rounds = divide_up(tiling.jobs, sm_count); rounds <= divide_up(tiling.jobs * most, sm_count); ++rounds) {
    const std::int64_t length = divide_up(tiling.chunks, std::min(most, rounds * sm_count / tiling.jobs));
    const std::int64_t cost = rounds * (length + 6);
    if (least == 0 || cost < least) slices = divide_up(tiling.chunks, length), least = cost;
  }
  tiling.chunks_per_slice = divide_up(tiling.chunks, slices);
  tiling.slices = divide_up(tiling.chunks, tiling.chunks_per_slice);
  const std::int64_t longest = slicing.longest_sum / kChunk;
  tiling.flushes = std::min(divide_up(tiling.chunks_per_slice, longest), std::max<std::int64_t>(1, allowed / tiling.slices));
  tiling.chunks_per_flush = divide_up(tiling.chunks_per_slice, tiling.flushes);
  tiling.flushes = divide_up(tiling.chunks_per_slice, tiling.chunks_per_flush);
  // In the ring of raw columns, which is empty then. Wider tiles have no registers for it.
  tiling.adds_turns = turns == 2 && tiling.flushes == 1 && tiling.shape.columns == 32 &&
                      tiling.columns_stages * tiling.columns.raw.bytes >= 64 * tiling.shape.columns * tiling.shape.shifts * 4;
  tiling.partial_slices = tiling.slices * tiling.flushes * (tiling.adds_turns ? 1 : turns);
}

/// How fast the kernel does what it has to do with one kind of numbers.
struct RowsRates {
  double bytes;               // per cycle, copied to a block
  double longest, other;      // weight of the longest part of a block, and of the parts that it hides
  double multiply, convert;   // factor on the tensor cores' minimum; cycles of a warp for its items
  double store, store_tma16;  // cycles of a block per sum: rows of x, of y
  double apart, apart_own;    // cycles per position: rows read one by one; with a consumer of its own
  double unlike, unlike_own;  // the same for rows that are not swizzled
  double terabytes;           // per second, for partial sums
  double fill;                // chunks
};
/// Fitted to the tiles of 51 problems on an H200 with 132 multiprocessors
/// (tests/cuda/conv/tensor_core/wgrad/measured_wgrad.hpp). For two halves of an f32, one half, and 16 bits.
constexpr RowsRates kRowsRates[] = {{27, 0.668, 0.47, 4.03, 136, 1.46, 0.0711, 1.84, 12, 3.98, 5.19, 1.49, 5.3},
                                    {42.2, 1.13, 0.0871, 1.53, 147, 1.22, 0.419, 4.21, 12.1, 4.63, 10.3, 0.721, 0.01},
                                    {12.5, 0.282, 0.34, 1.69, 155, 1.52, 0.493, 3.24, 6.84, 3.46, 3.93, 0.722, 0.0143}};
constexpr double kTensorTerabytes = 4.25;  // per second, of x and y, as a copy moves them

/// The work of a converting warp in a step: items of one position, rounded up to those that it has at a time.
int items_of_warp(const WgradTiling& tiling, int parts, bool is_scaled) {
  const int warps = (tiling.row_threads - 256) / 32 - 1, slots = static_cast<int>(divide_up(tiling.columns.items / 32, warps));
  if (tiling.columns.in_pairs) return 2 * slots;
  const int at_once = wgrad_items_at_once(tiling.shape, parts, is_scaled);
  return static_cast<int>(divide_up(slots, at_once)) * at_once;
}

/// Seconds of a launch, all that goes with it included.
double rows_cost(const WgradTiling& tiling, const ConvProblem& problem, int parts, int bytes, int sm_count) {
  constexpr double kLaunches = 6.8e-6;
  const RowsRates& rates = kRowsRates[parts >= 2 ? 0 : bytes == 4 ? 1 : 2];
  const double clock = bytes == 4 ? 1.65e9 : 1.83e9;  // 16 bits take less power
  const double chunk = tiling.chunk, arriving = (tiling.rows.raw.arriving + tiling.columns.raw.arriving) / chunk;
  const double copy = arriving / rates.bytes;
  const double multiply = (tiling.own == 0 ? 64.0 : 128.0) * tiling.shape.columns * tiling.shape.shifts * rates.multiply *
                          (parts == 3 ? 2 : 1) / 2048;
  const double convert = items_of_warp(tiling, parts, bytes == 4) / chunk * rates.convert;
  // Rows whose numbers are not neighbours are read one by one, which hides least if each consumer has rows of its own.
  const double apart = tiling.own == 0 ? rates.apart : rates.apart_own;
  const double unlike = tiling.own == 0 ? rates.unlike : rates.unlike_own;
  const double read = tiling.rows.step != 1 ? apart : tiling.rows.raw.is_swizzled ? 0.0 : unlike;
  const double longest = std::max({multiply, copy, convert});
  const double position = rates.longest * longest + rates.other * (multiply + copy + convert - longest) + read;
  // Sums of four neighbouring planes are stored together.
  const bool by_four = tiling.columns.planes % 4 == 0 && tiling.rows.planes == 1 && tiling.q % 4 == 0 && problem.K % 4 == 0;
  const double sums = 128.0 * tiling.shape.columns * tiling.shape.shifts * static_cast<double>(tiling.flushes);
  const double store = by_four ? 0.0 : (tiling.swapped ? rates.store_tma16 : rates.store) * sums;
  const auto rounds = static_cast<double>(divide_up(tiling.jobs * tiling.slices, sm_count));
  const double cycles = rounds * ((static_cast<double>(tiling.chunks_per_slice) + rates.fill) * chunk * position + store);
  // Either blocks or memory limit the time; if both take about as long, they wait for each other.
  const double tensors =
      bytes * static_cast<double>(problem.N) *
      (static_cast<double>(problem.C_in * problem.L_in) + static_cast<double>(problem.C_out * problem.L_out));
  const double share = sm_count / 132.0, block = cycles / clock, memory = tensors / (kTensorTerabytes * 1e12 * share);
  const double product = std::sqrt(std::hypot(block * block, memory * memory));
  // Partial sums are read again and the weights are written; in f32 all weights are read again (at the time of the fit).
  const double weights = static_cast<double>(problem.C_in) * static_cast<double>(problem.channels_out_per_group() * problem.K);
  const double bytes_of_weight =
      (tiling.partial_slices == 1 && bytes == 4 ? 0.0 : 4 * static_cast<double>(tiling.partial_slices) + bytes) +
      (bytes == 4 ? 4 : 0);
  return product + weights * bytes_of_weight / (rates.terabytes * 1e12 * share) + kLaunches * (bytes == 4 ? 2 : 1);
}

}  // namespace

namespace {

/// The tiles of some shapes that fit.
void add_candidates(std::vector<WgradTiling>& all, std::span<const WgradShape> shapes, const Slicing& slicing,
                    const ConvProblem& problem, int parts, int bytes, int sm_count, int shared_limit, std::size_t partial_limit,
                    bool aligned) {
  if (problem.N == 0) return;
  const std::int64_t phases = std::min(problem.S / std::gcd(problem.S, problem.D), problem.K);
  if (std::max(problem.channels_in_per_group(), (problem.channels_out_per_group() + 8) * phases) > INT32_MAX / 8) return;
  const double weight_bytes = 4.0 * static_cast<double>(problem.C_in) * static_cast<double>(problem.channels_out_per_group()) *
                              static_cast<double>(problem.K);
  for (const WgradShape& shape : shapes) {
    for (const bool swapped : {false, true}) {
      WgradTiling tiling = make_tiling(problem, shape, swapped, parts, bytes, aligned, shared_limit);
      // The largest kernels have registers only for rows that are used without a change of layout: x's.
      if (tiling.stages < 2 || (shape.columns * shape.shifts > 192 && (swapped || !tiling.rows.raw.is_swizzled))) continue;
      cut_slices(tiling, problem, slicing, sm_count, partial_limit);
      if (tiling.jobs * tiling.slices > INT32_MAX) continue;
      if (weight_bytes * static_cast<double>(tiling.partial_slices) > static_cast<double>(partial_limit)) continue;
      tiling.cost = rows_cost(tiling, problem, parts, bytes, sm_count);
      all.push_back(tiling);
    }
  }
}

WgradTiling cheapest(const std::vector<WgradTiling>& all) {
  WgradTiling best{};
  for (const WgradTiling& tiling : all)
    if (best.stages == 0 || tiling.cost < best.cost) best = tiling;
  return best;
}

/// What make_wgrad_tiling() remembers.
struct TilingKey {
  ConvProblem problem;
  int parts, bytes, sm_count, shared_limit;
  std::size_t partial_limit;
  bool aligned;
  bool operator==(const TilingKey&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hash_of(hash_of(problem), parts, bytes, sm_count, shared_limit, partial_limit, aligned);
  }
};

}  // namespace

std::vector<WgradTiling> wgrad_candidates(const ConvProblem& problem, int parts, int bytes, int sm_count, int shared_limit,
                                          std::size_t partial_limit, bool aligned) {
  std::vector<WgradTiling> all;
  const Slicing slicing{parts == 2 ? kLongestSplitSum : kLongestSum, 4};
  add_candidates(all, kWgradShapes, slicing, problem, parts, bytes, sm_count, shared_limit, partial_limit, aligned);
  if (parts == 1)
    add_candidates(all, kWgradLargeShapes, slicing, problem, parts, bytes, sm_count, shared_limit, partial_limit, aligned);
  return all;
}

WgradTiling make_wgrad_tiling(const ConvProblem& problem, int parts, int bytes, int sm_count, int shared_limit,
                              std::size_t partial_limit, bool aligned) {
  thread_local PlanCache<TilingKey, WgradTiling> remembered;
  return remembered.get({problem, parts, bytes, sm_count, shared_limit, partial_limit, aligned}, [&] {
    return cheapest(wgrad_candidates(problem, parts, bytes, sm_count, shared_limit, partial_limit, aligned));
  });
}

std::vector<WgradTiling> wide_wgrad_candidates(const ConvProblem& problem, int parts, int sm_count, int shared_limit,
                                               std::size_t partial_limit, bool aligned) {
  std::vector<WgradTiling> all;
  // The blocks mostly have nothing to do, so all of them should start together.
  add_candidates(all, kWgradWideShapes, {kLongestWideSum, 1}, problem, parts, kWideBytes, sm_count, shared_limit, partial_limit,
                 aligned);
  // A weight's job has to be known.
  std::erase_if(all, [&](const WgradTiling& tiling) { return make_wgrad_tiles(problem, tiling).jobs != tiling.jobs; });
  return all;
}

WgradTiling make_wide_wgrad_tiling(const ConvProblem& problem, int parts, int sm_count, int shared_limit,
                                   std::size_t partial_limit, bool aligned) {
  thread_local PlanCache<TilingKey, WgradTiling> remembered;
  return remembered.get({problem, parts, kWideBytes, sm_count, shared_limit, partial_limit, aligned}, [&] {
    return cheapest(wide_wgrad_candidates(problem, parts, sm_count, shared_limit, partial_limit, aligned));
  });
}

WgradPlan make_wgrad_plan(const ConvProblem& problem, int parts, int bytes, int sm_count, int shared_limit,
                          std::size_t partial_limit, bool aligned) {
  constexpr double kGain = 0.9;  // the estimate's error
  const WgradPlan apart{make_wgrad_tiling(problem, parts, bytes, sm_count, shared_limit, partial_limit, aligned)};
  const auto joined = join_samples(problem);
  if (!joined || static_cast<std::size_t>(joined_bytes(*joined)) > partial_limit) return apart;
  WgradPlan together{make_wgrad_tiling(joined->problem, parts, bytes, sm_count, shared_limit, partial_limit), joined};
  together.tiling.cost += join_seconds(*joined);
  const bool is_faster = apart.tiling.stages == 0 || together.tiling.cost < kGain * apart.tiling.cost;
  return together.tiling.stages > 0 && is_faster ? together : apart;
}

std::optional<double> wgrad_cost(const ConvProblem& problem, Precision precision, int sm_count, int shared_limit) {
  const bool is_f32 = problem.dtype == DType::f32;
  const int parts = is_f32 && precision != Precision::tf32 ? 2 : 1;
  const WgradPlan plan = make_wgrad_plan(problem, parts, is_f32 ? 4 : 2, sm_count, shared_limit, conv_workspace_limit());
  if (plan.tiling.stages == 0) return std::nullopt;
  return plan.tiling.cost;
}

bool has_wgrad_tiling(const ConvProblem& problem, Precision precision, int sm_count, int shared_limit) {
  const bool is_f32 = problem.dtype == DType::f32;
  const int parts = is_f32 && precision != Precision::tf32 ? 2 : 1;
  const auto has = [&](bool aligned) {
    return make_wgrad_plan(problem, parts, is_f32 ? 4 : 2, sm_count, shared_limit, conv_workspace_limit(), aligned)
               .tiling.stages > 0;
  };
  return has(true) && has(false);
}

}  // namespace polyphase::cuda::tensor_core
