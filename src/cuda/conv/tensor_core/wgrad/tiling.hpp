#pragma once
// Tilings of the tensor-core weight gradient. Host arithmetic only.
//
// With q = S / gcd(S, D) and d = D / gcd(S, D), tap k = r + q*j of position i pairs with y[S*(i + j*d) + r*D - P_l]: plane r of
// y, j*d positions further on. So w[ci, co, r + q*j] = sum over i of x[ci, i] * y_r[co, i + j*d], and (co, r) are the columns
// of one product for each j. Either side can be the rows; the other side, the columns, is shifted.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/joined/joined.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kChunk = 64;       // positions of a step of a warpgroup
inline constexpr int kWgradStages = 6;  // at most
inline constexpr int kMostClasses = 8;

/// A block's tile: its columns (gemm_n) and its shifts, both fixed at compile time.
struct WgradShape {
  int columns, shifts;
};
inline constexpr WgradShape kWgradShapes[] = {{64, 3}, {64, 2}, {64, 1}, {128, 1}, {32, 5}, {32, 3}};
/// For operands of one part: twice the sums.
inline constexpr WgradShape kWgradLargeShapes[] = {{128, 3}, {128, 2}};
/// For bf16 parts of f32 (wide.hpp).
inline constexpr WgradShape kWgradWideShapes[] = {{64, 3}, {64, 1}, {32, 4}};

/// The rows of a side as tensor copies load them to shared memory. The pitch of a copy's rows must be a multiple of 16 bytes,
/// so every `classes`-th row is a separate tensor. [class][box][row of the class][width].
struct WgradRaw {
  int classes;
  int rows;                           // of a class in a box
  int boxes, width;                   // neighbouring boxes; numbers per row of a box
  int span;                           // numbers from box to box; the overlap is in both
  int span_log2;                      // of the rows
  bool is_exact;                      // rows begin with the window; else up to 16 bytes before it, where a copy can begin
  bool is_swizzled;                   // boxes of 128 bytes per row, swizzled
  int box_bytes, class_bytes, bytes;  // from box to box, from class to class, in total
  int arriving;                       // bytes per step
};

/// One operand. Its rows are blocks of 8 channels of a plane, the plane the faster: block b is channels 8*(b / planes).. of
/// plane b % planes. In shared memory: [block][position][8 channels], 16 bytes per position.
struct WgradSide {
  std::int64_t length;           // of a row
  std::int64_t start;            // element of plane 0 at position 0 for shift 0
  std::int64_t start_per_shift;  // added for the block's first shift
  std::int64_t step, plane_step;
  int channels;  // per group
  int planes, blocks;
  int tile;           // blocks of a tile
  int window, pitch;  // positions that are loaded, and from block to block
  int items;          // whole warps of them: one item is a block at one position
  bool in_pairs;      // an item is a block at two positions, whose numbers are together
  WgradRaw raw;
  FastDivide by_plane_window, by_planes;
};

struct WgradTiling {
  WgradShape shape;
  bool swapped;                     // the rows are y's, else x's
  int row_threads;                  // of a block
  int rows_stages, columns_stages;  // of raw rows
  int q, d;
  WgradSide rows, columns;
  int own;    // rows of a warpgroup's tile apart: 64, or 0 where the two take turns along the positions
  int chunk;  // positions of a step: kChunk, or twice that where the consumers take turns
  int first_shift_offset, shift_step;  // window position of shift 0, and of each further one
  int halo;                            // positions that the last shift of a block reaches beyond the first
  int stage_bytes, stages;
  int shared_bytes;  // dynamic
  int shifts;        // of the problem
  int row_tiles, column_tiles, shift_tiles;
  std::int64_t jobs;  // blocks per slice; fewer than 2^31 with the slices
  std::int64_t positions, chunks_per_row, chunks, chunks_per_slice, slices;
  std::int64_t chunks_per_flush, flushes;  // partial sums per slice
  bool adds_turns;                         // consumers that take turns add their sums before they store them
  std::int64_t partial_slices;
  double cost;  // the estimated seconds of all launches
};

/// Threads of a block: two warpgroups that multiply, one warp that copies, and the others convert the columns: seven
/// warps where they split numbers and there are registers for so many, else three.
[[nodiscard]] constexpr int wgrad_row_threads(WgradShape shape, int parts) {
  return parts >= 2 && shape.columns * shape.shifts <= 192 ? 512 : 384;
}

/// Whether converters have registers for two positions at a time.
[[nodiscard]] constexpr bool wgrad_pairs_fit(WgradShape shape, int parts) {
  return parts >= 2 && (shape.columns == 64 || (shape.columns == 32 && shape.shifts > 3));
}

/// Registers of a thread, of 168 or 128 at launch.
struct WgradRegisters {
  int consumer, converter;
};
[[nodiscard]] constexpr WgradRegisters wgrad_registers(WgradShape shape, int parts) {
  const int consumer = shape.columns * shape.shifts > 256 ? 232 : parts >= 2 ? 208 : 216;
  return {consumer, wgrad_row_threads(shape, parts) == 384 ? 504 - 2 * consumer : 256 - consumer};
}

/// Items of one position that a converter has at a time. `is_scaled`: for f32.
[[nodiscard]] constexpr int wgrad_items_at_once(WgradShape shape, int parts, bool is_scaled) {
  return is_scaled && wgrad_registers(shape, parts).converter < 56 ? 1 : 2;
}

/// Whether high halves of the rows are multiplied by both halves of the columns together: if registers suffice for two sets of
/// such sums. The columns' low halves then precede the high ones.
[[nodiscard]] constexpr bool wgrad_multiplies_together(WgradShape shape, int parts) {
  return parts == 2 && shape.columns == 32 && shape.shifts == 5;
}

/// Entries of the list of items; a converter has up to two at a time.
[[nodiscard]] constexpr int wgrad_listed_items(const WgradTiling& tiling) {
  const int at_once = 2 * (tiling.row_threads - 256 - 32);
  return (tiling.columns.items + at_once - 1) / at_once * at_once;
}

/// `parts`: 2 where a number is two halves; `bytes`: of an element; `partial_limit`: bytes that the partial sums may take;
/// `aligned`: x and y begin at multiples of 16 bytes. It is remembered, so that asking again costs less than a launch. No
/// stages where no tile fits: then mma_sync/ does the problem.
[[nodiscard]] WgradTiling make_wgrad_tiling(const ConvProblem& problem, int parts, int bytes, int sm_count, int shared_limit,
                                            std::size_t partial_limit, bool aligned = true);

/// All tiles that fit, whose least partial sums do, and which are fewer than 2^31 blocks; the same arguments.
/// make_wgrad_tiling() is the one of least cost.
[[nodiscard]] std::vector<WgradTiling> wgrad_candidates(const ConvProblem& problem, int parts, int bytes, int sm_count,
                                                        int shared_limit, std::size_t partial_limit, bool aligned = true);

/// All tiles of the wide kernel by rows (wide.hpp), for `parts` bf16 of an f32.
[[nodiscard]] std::vector<WgradTiling> wide_wgrad_candidates(const ConvProblem& problem, int parts, int sm_count,
                                                             int shared_limit, std::size_t partial_limit, bool aligned = true);

/// The one of least cost, which is remembered too; no stages where none fits.
[[nodiscard]] WgradTiling make_wide_wgrad_tiling(const ConvProblem& problem, int parts, int sm_count, int shared_limit,
                                                 std::size_t partial_limit, bool aligned);

/// A tiling of the problem, or of its samples joined.
struct WgradPlan {
  WgradTiling tiling;
  std::optional<JoinedSamples> joined{};
};

/// make_wgrad_tiling()'s for the problem, or for its samples joined where that takes less time and they fit `partial_limit`.
[[nodiscard]] WgradPlan make_wgrad_plan(const ConvProblem& problem, int parts, int bytes, int sm_count, int shared_limit,
                                        std::size_t partial_limit, bool aligned = true);

/// The estimated seconds of the weight gradient, all its launches included; nothing where mma_sync/ does it. Fitted to
/// measurements on an H200 of 132 multiprocessors, within 20 percent on 46 of 47. A pure function of its arguments
/// and conv_workspace_limit().
[[nodiscard]] std::optional<double> wgrad_cost(const ConvProblem& problem, Precision precision, int sm_count, int shared_limit);

/// Whether there is a tile wherever x and y begin.
[[nodiscard]] bool has_wgrad_tiling(const ConvProblem& problem, Precision precision, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
