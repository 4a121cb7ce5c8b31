#pragma once
// The tilings of Algorithm::direct: the tile table, the choice of a tile, the steps of gemm_k. Plain host code.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::direct {

inline constexpr int kStages = 3;     // of the general kernel's shared memory, filled by cp.async; one barrier a step
inline constexpr int kPieceTaps = 4;  // taps that the window kernel computes from one set of registers

/// Words from one column to the next in a warp's finished sums in shared memory; spreads a position's classes over the banks.
constexpr int sum_pitch(int positions) { return positions + 4; }

/// How one launch splits gemm_k into steps; chosen on the host so that the stages fit in shared memory.
struct Steps {
  int rows, planes, taps;  // of one step
  int row_steps, plane_steps, tap_steps;
  int last_rows;                   // of the last step
  int window;                      // source positions of one row and plane in a step
  int source_words, weight_words;  // of one stage; the packed weights of a step are weight_words neighbours
  int piece_taps;                  // order of a step's weights: 0 [tap][plane][row], else [piece][row][plane][tap of the piece]
  int slices, slice_steps;         // slices of gemm_k, each summed by blocks of its own, and their row steps (window kernel)
  int row_pitch;  // joined rows: positions from one sample's first to the next's; 0 if every tile is of one sample
  std::int64_t position_tiles, column_tiles;
  std::int64_t blocks;  // of one slice
  FastDivide by_planes, by_stride, by_gcd, by_classes;
  FastDivide by_column_tiles, by_position_tiles, by_groups;  // for block numbers below 2^31
  FastDivide by_row_pitch;
};

/// Which kernel a tile is for.
enum class Body : std::uint8_t {
  general,  ///< kernel.cuh: any problem; one shared-memory word read per position and tap
  window    ///< window.cuh: f32, classes of equal taps; a thread's positions are neighbours and share their window
};

/// A row of the tile table.
struct Tile {
  Body body;
  int positions, columns, thread_positions, thread_columns;
  int stages, stage_bytes;  ///< shared memory: decides how many blocks share an SM's 227 KB
  int products;             ///< (row, plane, tap) triples of a step: enough work between barriers
  double rate;              ///< FFMA rate relative to the first row, measured on an H200 (docs/kernels/direct.md)
  [[nodiscard]] constexpr int threads() const { return positions / thread_positions * (columns / thread_columns); }
};

inline constexpr std::array<Tile, 14> kTiles32 = {{
    {Body::general, 128, 128, 4, 16, kStages, 33 * 1024, 64, 1.00},
    {Body::general, 128, 64, 4, 16, kStages, 33 * 1024, 64, 0.96},
    {Body::general, 128, 64, 4, 16, kStages, 18 * 1024, 64, 0.97},  // four blocks per SM: stores of one overlap sums of another
    {Body::general, 256, 64, 8, 8, kStages, 33 * 1024, 64, 1.03},
    {Body::general, 128, 32, 4, 16, kStages, 9 * 1024, 64, 0.89},
    {Body::general, 256, 32, 8, 8, kStages, 18 * 1024, 64, 0.98},
    {Body::general, 128, 16, 4, 4, kStages, 18 * 1024, 64, 0.60},  // many small blocks, for problems that would leave SMs idle
    {Body::general, 512, 4, 4, 4, kStages, 18 * 1024, 64, 0.55},   // one to four output channels
    {Body::window, 256, 64, 8, 8, 2, 50 * 1024, 96, 1.29},
    {Body::window, 256, 32, 8, 8, 2, 27 * 1024, 96, 1.22},
    {Body::window, 128, 64, 4, 8, 3, 33 * 1024, 64, 1.20},  // short rows
    {Body::window, 256, 16, 8, 8, 3, 9 * 1024, 64, 1.10},   // eight blocks per SM: few columns, many small blocks
    {Body::window, 128, 16, 4, 8, 3, 9 * 1024, 64, 1.00},   // many blocks of few positions
    {Body::window, 128, 16, 4, 8, 3, 24 * 1024, 64, 1.00},  // small problems: fewest steps, each limited by memory latency
}};
inline constexpr std::array<Tile, 2> kTiles64 = {
    {{Body::general, 128, 64, 4, 8, kStages, 33 * 1024, 64, 1.0}, {Body::general, 128, 16, 4, 4, kStages, 18 * 1024, 64, 0.7}}};

/// Positions from one sample's first to the next's when samples are joined: a row with its halo, in whole quads, so that a tile
/// may span samples. 0 if that saves less than one tile in 32, because sample edges within a tile cost time too.
[[nodiscard]] inline int joined_pitch(const TapGemm& gemm, const Tile& tile) {
  constexpr std::int64_t kLongest = 1 << 20;
  if (tile.body != Body::window || gemm.N == 1) return 0;
  const std::int64_t pitch = (gemm.position_count + (gemm.taps - 1) * gemm.tap_step + 3) / 4 * 4;
  if (pitch > kLongest) return 0;
  const std::int64_t apart = gemm.N * ((gemm.position_count + tile.positions - 1) / tile.positions);
  return (gemm.N * pitch + tile.positions - 1) / tile.positions * 33 < apart * 32 ? static_cast<int>(pitch) : 0;
}

/// Tiles of positions of one group, over all samples.
[[nodiscard]] inline std::int64_t tiles_of_positions(const TapGemm& gemm, const Tile& tile) {
  const std::int64_t pitch = joined_pitch(gemm, tile);
  if (pitch > 0) return (gemm.N * pitch + tile.positions - 1) / tile.positions;
  return gemm.N * ((gemm.position_count + tile.positions - 1) / tile.positions);
}

/// Computes the fields that follow from rows, planes, taps and window.
inline void finish_steps(const TapGemm& gemm, const Tile& tile, Steps& steps) {
  steps.row_steps = static_cast<int>((gemm.rows + steps.rows - 1) / steps.rows);
  steps.last_rows = static_cast<int>(gemm.rows - static_cast<std::int64_t>(steps.row_steps - 1) * steps.rows);
  steps.plane_steps = static_cast<int>((gemm.planes + steps.planes - 1) / steps.planes);
  steps.tap_steps = static_cast<int>((gemm.taps + steps.taps - 1) / steps.taps);
  steps.slices = 1;
  steps.slice_steps = steps.row_steps;
  steps.row_pitch = joined_pitch(gemm, tile);
  steps.by_row_pitch = FastDivide(static_cast<std::uint32_t>(std::max(steps.row_pitch, 1)));
  steps.position_tiles = tiles_of_positions(gemm, tile) / (steps.row_pitch > 0 ? 1 : gemm.N);
  steps.column_tiles = (gemm.columns + tile.columns - 1) / tile.columns;
  steps.blocks = tiles_of_positions(gemm, tile) * gemm.G * steps.column_tiles;
  steps.by_planes = FastDivide(static_cast<std::uint32_t>(steps.planes));
  steps.by_stride = FastDivide(static_cast<std::uint32_t>(gemm.out_stride));
  steps.by_gcd = FastDivide(static_cast<std::uint32_t>(gemm.out_gcd));
  steps.by_classes = FastDivide(static_cast<std::uint32_t>(gemm.classes));
  if (steps.blocks <= INT32_MAX) {
    steps.by_column_tiles = FastDivide(static_cast<std::uint32_t>(steps.column_tiles));
    steps.by_position_tiles = FastDivide(static_cast<std::uint32_t>(steps.position_tiles));
    steps.by_groups = FastDivide(static_cast<std::uint32_t>(gemm.G));
  }
}

/// Splits gemm_k for the general kernel so that a stage fits. One row, plane and tap per step fits any problem.
[[nodiscard]] inline Steps make_tiling(const TapGemm& gemm, const Tile& tile, int word_bytes) {
  Steps steps{};
  auto set = [&](std::int64_t rows, std::int64_t planes, std::int64_t taps) {
    steps.rows = static_cast<int>(rows);
    steps.planes = static_cast<int>(planes);
    steps.taps = static_cast<int>(taps);
    std::int64_t window = tile.positions + (taps - 1) * gemm.tap_step;
    const std::int64_t spread = std::max<std::int64_t>(1, 32 / planes);  // planes start in different banks
    if (planes > 1) window += (spread - window % 32 + 32) % 32;
    const std::int64_t source_words = (rows * planes * window + 3) / 4 * 4;
    const std::int64_t weight_words = taps * planes * rows * tile.columns;
    const bool fits = (source_words + weight_words) * word_bytes <= tile.stage_bytes;
    steps.window = static_cast<int>(std::min<std::int64_t>(window, INT32_MAX));
    steps.source_words = static_cast<int>(std::min<std::int64_t>(source_words, INT32_MAX));
    steps.weight_words = static_cast<int>(std::min<std::int64_t>(weight_words, INT32_MAX));
    return fits;
  };
  std::int64_t taps = gemm.taps, planes = gemm.planes;
  while (taps > 1 && ((taps - 1) * gemm.tap_step > 2 * tile.positions || !set(1, 1, taps))) taps = (taps + 1) / 2;
  while (planes > 1 && !set(1, planes, taps)) planes = (planes + 1) / 2;
  std::int64_t rows = std::clamp<std::int64_t>(tile.products / (taps * planes), 1, gemm.rows);
  while (!set(rows, planes, taps) && rows > 1) --rows;
  rows = (gemm.rows + (gemm.rows + rows - 1) / rows - 1) / ((gemm.rows + rows - 1) / rows);  // steps of equal length
  set(rows, planes, taps);
  finish_steps(gemm, tile, steps);
  return steps;
}

/// Splits gemm_k for the window kernel: a step holds all planes and taps of some rows. Returns steps.rows = 0 if that kernel
/// cannot compute `gemm`: a class or plane has fewer taps than the others, the distance between taps has no instance, or a
/// single row does not fit in a stage.
[[nodiscard]] inline Steps make_window_steps(const TapGemm& gemm, const Tile& tile) {
  Steps steps{};
  const bool known_step = gemm.taps == 1 || gemm.tap_step <= 3 || gemm.tap_step % 4 == 0;
  if (!known_step || gemm.full_classes < gemm.classes || gemm.full_planes < gemm.planes) return steps;
  // A piece begins at a quad of the window: four taps for any step, or single taps that are whole quads apart.
  steps.piece_taps = gemm.taps > 1 && gemm.tap_step % 4 == 0 ? 1 : kPieceTaps;
  const std::int64_t halo = (gemm.taps - 1) * gemm.tap_step;
  const std::int64_t budget = tile.stage_bytes / 4;
  if (halo > 2 * tile.positions || gemm.taps > budget || gemm.planes > budget) return steps;
  std::int64_t window = tile.positions + (halo + 3) / 4 * 4;
  if (gemm.planes > 1) {  // planes start in different banks
    const std::int64_t spread = std::max<std::int64_t>(4, 32 / gemm.planes / 4 * 4);
    window += (spread - window % 32 + 32) % 32;
  }
  const std::int64_t row_words = gemm.planes * (window + gemm.taps * tile.columns);
  if (row_words > budget) return steps;
  std::int64_t rows = std::clamp<std::int64_t>(tile.products / (gemm.taps * gemm.planes), 1, budget / row_words);
  rows = std::min(rows, gemm.rows);
  if (rows > 1) rows -= rows % 2;  // the loop over rows is unrolled by two
  const std::int64_t count = (gemm.rows + rows - 1) / rows;
  std::int64_t equal = (gemm.rows + count - 1) / count;
  if (equal < rows) equal += equal % 2;
  steps.rows = static_cast<int>(equal);
  steps.planes = static_cast<int>(gemm.planes);
  steps.taps = static_cast<int>(gemm.taps);
  steps.window = static_cast<int>(window);
  steps.source_words = static_cast<int>(equal * gemm.planes * window);
  steps.weight_words = static_cast<int>(equal * gemm.planes * gemm.taps * tile.columns);
  finish_steps(gemm, tile, steps);
  return steps;
}

/// Whether the window kernel can copy the source in quads: its rows and planes begin at multiples of 16 bytes. If so, moves the
/// first position back so that every tile's window begins at a quad. The added positions precede the first output.
inline bool shift_to_quads(TapGemm& gemm, const void* source) {
  const bool rows_aligned = reinterpret_cast<std::uintptr_t>(source) % 16 == 0 && gemm.source_length % 4 == 0;
  if (!rows_aligned || gemm.planes != 1 || gemm.source_stride != 1) return false;
  const std::int64_t shift = ((gemm.position_begin + gemm.source_origin) % 4 + 4) % 4;
  gemm.position_begin -= shift;
  gemm.position_count += shift;
  return true;
}

/// Words of dynamic shared memory per block: the stages, reused for the sums of every warp.
[[nodiscard]] inline std::size_t shared_words(const Tile& tile, const Steps& steps) {
  const std::size_t stages =
      static_cast<std::size_t>(tile.stages) * static_cast<std::size_t>(steps.source_words + steps.weight_words);
  const int warps = tile.threads() / 32;
  return std::max(stages, static_cast<std::size_t>(warps * tile.thread_columns * sum_pitch(32 * tile.thread_positions)));
}

/// Splits the row steps into at most `slices` slices of equal length.
inline void split_steps(Steps& steps, int slices) {
  steps.slice_steps = (steps.row_steps + slices - 1) / slices;
  steps.slices = (steps.row_steps + steps.slice_steps - 1) / steps.slice_steps;
}

/// A row of the tile table and the slices of gemm_k.
struct Choice {
  std::size_t tile;
  int slices;
};

/// Number of elements written.
[[nodiscard]] inline double output_elements(const TapGemm& gemm) {
  return static_cast<double>(gemm.N * gemm.G) * static_cast<double>(gemm.out_channels) * static_cast<double>(gemm.out_length);
}

inline constexpr int kMostSlices = 16;
inline constexpr double kPartialBytes = 256.0 * 1024 * 1024;  // limit for the partial sums

/// The most slices that gemm_k may be split into; 0 if `tile` cannot compute `gemm` at all.
[[nodiscard]] inline int most_slices(const TapGemm& gemm, const Tile& tile, bool is_f32) {
  if (tile.body == Body::general) return 1;
  const int row_steps = is_f32 ? make_window_steps(gemm, tile).row_steps : 0;
  const double bytes = 4 * output_elements(gemm);
  return std::min({row_steps, kMostSlices, std::max(1, static_cast<int>(std::min(kPartialBytes / bytes, 100.0)))});
}

/// Estimated cycles: the work of the busiest SM.
[[nodiscard]] inline double estimate_cycles(const TapGemm& gemm, const Tile& tile, int slices, int sm_count) {
  const double blocks = static_cast<double>(gemm.G) * slices * static_cast<double>(tiles_of_positions(gemm, tile)) *
                        static_cast<double>((gemm.columns + tile.columns - 1) / tile.columns);
  const double products = static_cast<double>(gemm.rows * gemm.planes * gemm.taps) / slices;
  constexpr double kLanes = 82;  // FFMA lanes of an SM, of 128, that the first tile keeps busy
  // Store time, which the other blocks of the SM hide in part, and a constant for filling the first stages.
  constexpr double kSharedBytes = 227 * 1024, kStoreCycles = 0.45, kBegin = 4000;
  const double stationary = std::max(1.0, std::floor(kSharedBytes / (tile.stages * tile.stage_bytes)));
  const double area = static_cast<double>(tile.positions) * tile.columns;
  const double block_cycles = area * (products / (kLanes * tile.rate) + kStoreCycles / stationary);
  const double per_sm = blocks / sm_count < 8 ? std::ceil(blocks / sm_count) : blocks / sm_count;
  const double warps = std::min(16.0, per_sm * tile.threads() / 32);
  const double busy = warps >= 16  ? 1.0
                      : warps >= 8 ? 0.85
                      : warps >= 4 ? 0.6
                                   : 0.35;  // few warps do not hide the latency of their reads
  double cycles = kBegin + per_sm * block_cycles / busy;
  constexpr double kLaunch = 7000, kBytesPerCycle = 16;  // per SM
  if (slices > 1) cycles += kLaunch + 4 * (slices + 1) * output_elements(gemm) / (sm_count * kBytesPerCycle);
  return cycles;
}

/// The choice with the least estimated time. A pure function of the problem and the number of SMs. `tile` and `slices` are
/// forced if they are given and possible.
template <std::size_t kCount>
[[nodiscard]] Choice choose(const std::array<Tile, kCount>& tiles, const TapGemm& gemm, int sm_count, bool is_f32,
                            int tile = -1, int slices = 0) {
  Choice best{0, 1};
  double best_cycles = 1e300;
  const auto forced = static_cast<std::size_t>(tile);
  const bool is_forced = tile >= 0 && forced < kCount && most_slices(gemm, tiles[forced], is_f32) > 0;
  for (std::size_t i = is_forced ? forced : 0; i < (is_forced ? forced + 1 : kCount); ++i) {
    const int most = most_slices(gemm, tiles[i], is_f32);
    for (int s = slices > 0 ? std::min(slices, most) : 1; s >= 1 && s <= most; ++s) {
      const double cycles = estimate_cycles(gemm, tiles[i], s, sm_count);
      if (cycles < best_cycles) best_cycles = cycles, best = {i, s};
      if (slices > 0) break;
    }
  }
  return best;
}

}  // namespace polyphase::cuda::direct
