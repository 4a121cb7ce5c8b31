#pragma once
// The depthwise weight gradient for 16-bit types on tensor cores: read band.cuh first.
//
// With p = S*n + k + shift, w[k] = sum over n < 8 of C[k + shift + S*n][n], where
//   C[p][n] = sum over blocks b of y[begin + 8*S*b + p] * x[i + 8*b + n], begin = S*i - P - shift
// is a matrix product over b, 16 blocks per multiplication. Both operands are chunks of memory in their natural order,
// transposed on the way into registers. A few entries of C belong to no tap and are not read. A block computes one output
// channel for one slice: every (slices)-th (sample, tile) pair, so that neighbouring blocks read neighbouring memory. Each warp
// keeps C over the slice.

#include "cuda/conv/depthwise/band.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kBandWgradStages = 3;
inline constexpr int kBandWgradBlocks = 6;  // per SM

/// partial (slices, C_out, K). Shared memory: stages of y and x, reused for the warps' C. Pointers as in band_gather_kernel.
template <class T, int kDepth>
__global__ void __launch_bounds__(kBandThreads, kBandWgradBlocks)
    band_wgrad_kernel(const __grid_constant__ BandPlan plan, const T* x, const T* y, float* partial) {
  constexpr int V = kBandGroups;
  static_assert(V % 2 == 0, "x is loaded for two groups together");
  extern __shared__ __align__(16) unsigned char memory[];
  std::uint32_t* const stages = reinterpret_cast<std::uint32_t*>(memory);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), lane = thread % 32;
  const int channel = static_cast<int>(plan.by_slices.divide(blockIdx.x));
  const int slice = static_cast<int>(blockIdx.x) - channel * plan.slices;
  const int unit = static_cast<int>(plan.by_unit_slices.divide(static_cast<unsigned>(slice)));
  const int unit_slices = static_cast<int>(plan.by_unit_slices.divisor), first_tile = slice - unit * unit_slices;
  const std::int64_t C_out = plan.by_channels.divisor, C_in = plan.by_outputs.divide(plan.by_channels.divisor);

  const int first_item = unit * plan.unit_tiles + first_tile;
  const int n = static_cast<int>(plan.by_tiles.divide(static_cast<unsigned>(first_item)));
  int tile = first_item - n * plan.tiles;
  const T* row_of_x = x + (n * C_in + plan.by_outputs.divide(static_cast<unsigned>(channel))) * plan.L_in;
  const T* row_of_y = y + (n * C_out + channel) * plan.L_out;
  const int width = threads / 32 * V * kWarpBlocks * kChunk;
  // The same in every row of the slice; the number of whole chunks before it may differ.
  const int shift = misalignment(row_of_y - plan.S * misalignment(row_of_x, kBandLine) - plan.P, kChunk);

  const int first_block = thread / 32 * V * kWarpBlocks;
  wait_for_grid_before();
  float sums[kDepth][4] = {};
  int leads = 0;  // of the outstanding fetches, one byte each, the oldest lowest
  int fetches = 0;
  pipeline<kBandWgradStages>(
      (plan.unit_tiles - first_tile + unit_slices - 1) / unit_slices,
      [&](int, int stage) {
        std::uint32_t* const to = stages + stage * plan.stage_chunks * 4;
        const int i = tile * width - misalignment(row_of_x, kBandLine), begin = plan.S * i - plan.P;
        const int lead = misalignment(row_of_y + begin, kBandLine);
        fetch_chunks<kBandThreads>(row_of_y, plan.L_out, begin - lead, plan.chunks + lead / kChunk, plan.swizzle, to);
        fetch_chunks<kBandThreads>(row_of_x, plan.L_in, i, width / kChunk, 0, to + (plan.stage_chunks - width / kChunk) * 4);
        leads |= lead / kChunk << 8 * fetches++;
        for (tile += unit_slices; tile >= plan.tiles; tile -= plan.tiles)
          row_of_x += C_in * plan.L_in, row_of_y += C_out * plan.L_out;
      },
      [] {},
      [&](int, int stage) {
        const auto of_y = static_cast<std::uint32_t>(__cvta_generic_to_shared(stages + stage * plan.stage_chunks * 4));
        const auto of_x = of_y + static_cast<std::uint32_t>(plan.stage_chunks - width / kChunk + first_block + lane) * 16;
        const int first_chunk = (leads & 0xff) + plan.S * (first_block + lane % 8 + lane / 16 * 8) + lane / 8 % 2;
        leads >>= 8, --fetches;
        int places[kDepth];
#pragma unroll
        for (int d = 0; d < kDepth; ++d) places[d] = chunk_place(first_chunk + 2 * d, plan.swizzle) * 16;
        float products[kDepth][4] = {};  // of one tile: tensor cores add less exactly than the sums below
        std::uint32_t values[4];
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (v % 2 == 0) ptx::load_matrices_transposed(values, of_x + v * kWarpBlocks * 16);
#pragma unroll
          for (int d = 0; d < kDepth; ++d) {
            std::uint32_t windows[4];
            ptx::load_matrices_transposed(windows,
                                          of_y + static_cast<std::uint32_t>(places[d] + plan.S * v * kWarpBlocks * 16));
            ptx::multiply_add(products[d], windows, values[v % 2 * 2], values[v % 2 * 2 + 1], T());
          }
        }
#pragma unroll
        for (int i = 0; i < 4 * kDepth; ++i) sums[i / 4][i % 4] += products[i / 4][i % 4];
      });

  __syncthreads();                                           // no thread still reads the stages
  float* const of_warps = reinterpret_cast<float*>(memory);  // (warps, 16*kDepth, 8)
#pragma unroll
  for (int i = 0; i < 4 * kDepth; ++i) {
    const int p = i / 4 * 16 + i / 2 % 2 * 8 + lane / 4;
    of_warps[(thread / 32 * 16 * kDepth + p) * 8 + lane % 4 * 2 + i % 2] = sums[i / 4][i % 4];
  }
  __syncthreads();
  for (int k = thread; k < plan.K; k += threads) {
    float total = 0;
    for (int warp = 0; warp < threads / 32; ++warp) {
#pragma unroll
      for (int of_block = 0; of_block < 8; ++of_block)
        total += of_warps[(warp * 16 * kDepth + shift + k + plan.S * of_block) * 8 + of_block];
    }
    partial[(slice * C_out + channel) * plan.K + k] = total;
  }
}

}  // namespace polyphase::cuda::depthwise
