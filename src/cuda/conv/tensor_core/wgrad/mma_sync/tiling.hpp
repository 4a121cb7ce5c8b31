#pragma once
// Tilings of the weight gradient on mma.sync (kernel.cuh). Host arithmetic only.
//
// As on wgmma (wgrad/tiling.hpp): with q = S / gcd(S, D) and d = D / gcd(S, D), tap k = r + q*j of position i pairs with y[S*(i
// + j*d) + r*D - P_l]: plane r of y, j*d positions further on. Either side can be the rows; the other side, the columns, is
// shifted: w[ci, co, r + q*j] = sum over p of x[ci, p] * y_r[co, p + j*d], or of y_r[co, p] * x[ci, p - j*d].
//
// All samples follow each other on one line of positions, `pitch` apart, separated by as many zeros as the shifts reach. Any
// piece of the line can be computed by itself.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kMmaWgradStagesMost = 4;
inline constexpr int kMmaWgradDepth = 32;  // positions whose products are summed before they are added to the totals

/// The warps of a block in one kernel instance: each has 64 rows and mma_columns_of_warp() columns.
struct MmaWgradShape {
  int row_warps, column_warps;
  int blocks_per_sm;
};
constexpr int mma_columns_of_warp(int parts) { return parts == 2 ? 32 : 64; }

/// The kernel instances for operands of `parts` parts.
[[nodiscard]] std::span<const MmaWgradShape> mma_wgrad_shapes(int parts);

/// One tensor as operand: [group][block of 8 channels of a plane, the plane the faster][part][position][8 channels], 16 bits
/// each.
struct MmaWgradSide {
  std::int64_t length;                   // of a row of the tensor
  std::int64_t start, step, plane_step;  // plane r has at position p element start + step*p + plane_step*r, or zero
  int channels, planes, blocks;          // per group
  FastDivide by_planes, by_blocks;       // by_blocks: of 8 channels
  int tile;                              // blocks per tile in shared memory
};

struct MmaWgradTiling {
  int shape;     // index into mma_wgrad_shapes()
  bool swapped;  // the rows are y's, else x's
  int q, d, shifts;
  int halo;                            // positions that the last shift reaches
  std::int64_t pitch, line;            // positions of a sample; of all samples
  std::int64_t piece, pieces, places;  // positions per pass, and those of their operands
  FastDivide by_pitch;
  MmaWgradSide rows, columns;
  // Column tiles: vectors of 8 columns, number block * shifts_of_tile + shift.
  int shifts_of_tile, window;  // window: positions of the columns' blocks in shared memory
  int vectors, vectors_of_tile;
  int row_tiles, column_tiles, shift_tiles;
  std::int64_t jobs;
  int step;  // positions
  int row_bytes, stage_bytes, stages, shared_bytes;
  std::int64_t steps, steps_of_slice, slices;  // per piece
  std::int64_t sums;                           // of all jobs
  std::int64_t rows_bytes, columns_bytes, partial_bytes;
  [[nodiscard]] std::int64_t bytes() const { return rows_bytes + columns_bytes + partial_bytes; }
};

/// The tiling for kernel `shape`. stages == 0 if it does not fit in shared memory, or operands and partial sums do not fit in
/// `workspace_limit` bytes.
[[nodiscard]] MmaWgradTiling make_mma_wgrad_tiling(const ConvProblem& problem, int shape, bool swapped, int parts, int sm_count,
                                                   int shared_limit, std::size_t workspace_limit);

/// The estimated cycles.
[[nodiscard]] double mma_wgrad_cycles(const MmaWgradTiling& tiling, int parts, int sm_count);

/// The tiling with the shortest estimated time over all kernels and sides. Nothing if none fits. A pure function of its
/// arguments.
[[nodiscard]] std::optional<MmaWgradTiling> plan_mma_wgrad(const ConvProblem& problem, int parts, int sm_count,
                                                           int shared_limit, std::size_t workspace_limit);

}  // namespace polyphase::cuda::tensor_core
