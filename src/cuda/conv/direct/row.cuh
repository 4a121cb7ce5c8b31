#pragma once
// The direct kernel for one input channel: f32, stride 1, adjacent taps; forward and dgrad.
//
// There is no reduction over channels. A thread reads its window once (four positions and their taps) and applies the weights
// of many columns: out[column][pos + p] = sum over k of window[p + k] * weights[column][k]. Lanes are neighbours; a warp
// computes 128 positions of two columns, so even small problems have many warps. Bytes: the output once, the source once per
// sixteen columns from L2. Limited by the output's stores.

#include <cstdint>

#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/vector.cuh"

namespace polyphase::cuda::direct {

inline constexpr int kRowPositions = 128, kRowWarps = 8;
inline constexpr int kRowColumns = 2;    // per warp
inline constexpr int kMostRowQuads = 5;  // per window

/// Quads that hold four positions and their taps.
[[nodiscard]] inline int row_quads(const TapGemm& gemm) { return static_cast<int>((gemm.taps + 3 + 3) / 4); }

/// Tiles of positions and columns of one sample and group.
struct RowTiles {
  std::int64_t positions, columns, blocks;
};
[[nodiscard]] inline RowTiles row_tiles(const TapGemm& gemm) {
  constexpr int kColumns = kRowWarps * kRowColumns;
  const std::int64_t positions = (gemm.out_length + kRowPositions - 1) / kRowPositions;
  const std::int64_t columns = (gemm.columns + kColumns - 1) / kColumns;
  return {positions, columns, gemm.N * gemm.G * positions * columns};
}

/// Whether the kernel can compute `gemm`.
[[nodiscard]] inline bool is_row(const TapGemm& gemm) {
  return gemm.rows == 1 && gemm.planes == 1 && gemm.classes == 1 && gemm.out_gcd == 1 && gemm.source_stride == 1 &&
         gemm.out_stride == 1 && (gemm.tap_step == 1 || gemm.taps == 1) && gemm.taps + 6 < 4 * (kMostRowQuads + 1) &&
         gemm.source_length < std::int64_t{1} << 30 && gemm.out_length < std::int64_t{1} << 30 &&
         gemm.columns < std::int64_t{1} << 30 && row_tiles(gemm).blocks < std::int64_t{1} << 32;
}

/// `w` is (G, columns, taps); with `flip`, tap j of the window uses weight taps - 1 - j. Blocks are (column tile, position
/// tile, group, sample). `wide`: the rows of `out` begin at multiples of 16 bytes.
template <int kQuads>
__global__ void __launch_bounds__(32 * kRowWarps)
    row_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Epilogue epilogue,
               const __grid_constant__ RowTiles tiles, bool flip, bool wide, const float* __restrict__ source,
               const float* __restrict__ w, const float* __restrict__ bias, float* out) {
  constexpr int kWords = 4 * kQuads, kMost = kWords - 3;  // taps
  __shared__ alignas(16) float weights[kRowWarps][kRowColumns][kWords];
  const int taps = static_cast<int>(gemm.taps);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool is_relu = epilogue.activation == Activation::relu;
  const bool is_plain = !epilogue.has_aux() &&
                        (is_relu || epilogue.activation == Activation::leaky_relu || epilogue.activation == Activation::none);
  const bool has_aux = epilogue.is_light_aux() && (epilogue.residual | epilogue.derivative) % 16 == 0;
  const LightAuxFinish<float, float> late(epilogue);
  const float slope = epilogue.activation == Activation::leaky_relu ? static_cast<float>(epilogue.slope) : 1.0F;
  for (std::int64_t block = blockIdx.x; block < tiles.blocks; block += gridDim.x) {
    // 32-bit: a 64-bit division is a function call, which costs the caller registers.
    const auto index = static_cast<std::uint32_t>(block), above32 = index / static_cast<std::uint32_t>(tiles.columns),
               row32 = above32 / static_cast<std::uint32_t>(tiles.positions);
    const std::int64_t above = above32, row = row32, g = row32 % static_cast<std::uint32_t>(gemm.G);
    const std::int64_t first = ((block - above * tiles.columns) * kRowWarps + warp) * kRowColumns;  // column
    const int columns = static_cast<int>(min(gemm.columns - first, std::int64_t{kRowColumns}));
    // Position t of out is pos + out_origin.
    const int t = static_cast<int>(above - row * tiles.positions) * kRowPositions + 4 * lane;
    const int e = t - static_cast<int>(gemm.out_origin) + static_cast<int>(gemm.source_origin);
    const int length = static_cast<int>(gemm.source_length), out_length = static_cast<int>(gemm.out_length);
    const float* const from = source + row * gemm.source_length;
    float window[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) window[i] = i < taps + 3 && e + i >= 0 && e + i < length ? from[e + i] : 0.0F;
    for (int i = lane; i < columns * taps; i += 32) {
      const int c = i >= taps ? 1 : 0, j = i - c * taps;
      weights[warp][c][j] = w[(g * gemm.columns + first + c) * taps + (flip ? taps - 1 - j : j)];
    }
    // The aux operand is read in vectors too, and early.
    float* const own = out + (row * gemm.columns + first) * gemm.out_length + t;
    const bool whole = wide && t + 4 <= out_length;
    float4 added[kRowColumns], result[kRowColumns];
    if (has_aux && whole) {
      const auto aux = [&](int c, std::int64_t distance, float none) {
        const float* const at = Epilogue::aux(own + c * gemm.out_length, distance);
        return distance != 0 && c < columns ? *reinterpret_cast<const float4*>(at) : make_float4(none, none, none, none);
      };
#pragma unroll
      for (int c = 0; c < kRowColumns; ++c)
        added[c] = aux(c, epilogue.residual, -0.0F), result[c] = aux(c, epilogue.derivative, 1.0F);
    }
    __syncwarp();
#pragma unroll
    for (int c = 0; c < kRowColumns; ++c) {
      if (c >= columns) break;
      alignas(16) float ws[kWords];
      load_vector(weights[warp][c], ws);
      alignas(16) float sums[4] = {};
#pragma unroll
      for (int j = 0; j < kMost; ++j) {
        if (j > kMost - 4 && j >= taps) break;
#pragma unroll
        for (int p = 0; p < 4; ++p) sums[p] += window[p + j] * ws[j];
      }
      const std::int64_t channel = g * gemm.columns + first + c;
      const float offset = bias != nullptr ? bias[channel] : 0.0F;
      float* const to = own + c * gemm.out_length;
      if (is_plain) {
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const float value = sums[p] + offset;
          sums[p] = value < 0.0F ? (is_relu ? 0.0F : slope * value) : value;
        }
        if (whole) *reinterpret_cast<float4*>(to) = {sums[0], sums[1], sums[2], sums[3]};
      }
      if (has_aux && whole)
        *reinterpret_cast<float4*>(to) = {
            late(sums[0] + offset, {added[c].x, result[c].x}), late(sums[1] + offset, {added[c].y, result[c].y}),
            late(sums[2] + offset, {added[c].z, result[c].z}), late(sums[3] + offset, {added[c].w, result[c].w})};
      if ((is_plain || has_aux) && whole) continue;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        if (t + p < out_length) to[p] = is_plain ? sums[p] : epilogue.finish<float>(sums[p] + offset, channel, to + p);
      }
    }
    __syncwarp();  // before the next block's weights
  }
}

}  // namespace polyphase::cuda::direct
