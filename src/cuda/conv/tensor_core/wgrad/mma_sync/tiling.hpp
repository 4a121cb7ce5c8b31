#pragma once
// How the weight gradient on mma.sync (kernel.cuh) cuts a problem. Host arithmetic only.
//
// As on wgmma (wgrad/tiling.hpp): with q = S / gcd(S, D) and d = D / gcd(S, D), tap k = r + q*j of position i
// meets y[S*(i + j*d) + r*D - P_l]: plane r of y, j*d positions further. Either side can be the rows; the other, the columns,
// is the one that is shifted: w[ci, co, r + q*j] = sum over p of x[ci, p] * y_r[co, p + j*d], or of y_r[co, p] * x[ci, p -
// j*d].
//
// All samples lie one behind the other on one line of positions, `pitch` apart: between them are as many zeros as the shifts
// reach. Any piece of the line can be done by itself.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "conv/problem.hpp"
#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kMmaWgradStagesMost = 4;
inline constexpr int kMmaWgradDepth = 32;  // positions whose products are added up before they join the totals

/// The warps of a block of one kernel instance: each has 64 rows and mma_columns_of_warp() columns.
struct MmaWgradShape {
  int row_warps, column_warps;
  int blocks_per_sm;
};
constexpr int mma_columns_of_warp(int parts) { return parts == 2 ? 32 : 64; }

/// The kernels there are for operands of `parts` parts.
[[nodiscard]] std::span<const MmaWgradShape> mma_wgrad_shapes(int parts);

/// One tensor as operand: [group][block of 8 channels of a plane, the plane the faster][part][position][8 channels], 16 bits
/// each.
struct MmaWgradSide {
  std::int64_t length;                   // of a row of the tensor
  std::int64_t start, step, plane_step;  // plane r has at position p element start + step*p + plane_step*r, or zero
  int channels, planes, blocks;          // of a group
  FastDivide by_planes, by_blocks;       // by_blocks: of 8 channels
  int tile;                              // blocks that a tile has in shared memory
};

struct MmaWgradTiling {
  int shape;     // one of mma_wgrad_shapes()
  bool swapped;  // the rows are y's, else x's
  int q, d, shifts;
  int halo;                            // positions that the last shift reaches
  std::int64_t pitch, line;            // positions of a sample, of all
  std::int64_t piece, pieces, places;  // positions done at a time, and those of their operands
  FastDivide by_pitch;
  MmaWgradSide rows, columns;
  // Column tiles: vectors of 8 columns, number block * shifts_of_tile + shift.
  int shifts_of_tile, window;  // window: positions of the columns' blocks in shared memory
  int vectors, vectors_of_tile;
  int row_tiles, column_tiles, shift_tiles;
  std::int64_t jobs;
  int step;  // positions
  int row_bytes, stage_bytes, stages, shared_bytes;
  std::int64_t steps, steps_of_slice, slices;  // of a piece
  std::int64_t sums;                           // of all jobs
  std::int64_t rows_bytes, columns_bytes, partial_bytes;
  [[nodiscard]] std::int64_t bytes() const { return rows_bytes + columns_bytes + partial_bytes; }
};

/// Cut for kernel `shape`. stages == 0 where it does not fit the shared memory, or less than `workspace_limit` bytes of
/// operands and partial sums.
[[nodiscard]] MmaWgradTiling make_mma_wgrad_tiling(const ConvProblem& problem, int shape, bool swapped, int parts, int sm_count,
                                                   int shared_limit, std::size_t workspace_limit);

/// The estimated time, in cycles.
[[nodiscard]] double mma_wgrad_cycles(const MmaWgradTiling& tiling, int parts, int sm_count);

/// Of all kernels and sides, what is estimated to be fastest. Nothing where none fits. A pure function of its arguments.
[[nodiscard]] std::optional<MmaWgradTiling> plan_mma_wgrad(const ConvProblem& problem, int parts, int sm_count,
                                                           int shared_limit, std::size_t workspace_limit);

}  // namespace polyphase::cuda::tensor_core
