#pragma once
// Host side of the direct kernel: the tile table, the choice, the packed weights, the launch. Included by one .cu file per
// dtype.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "cuda/allocator.hpp"
#include "cuda/conv/direct.cuh"
#include "cuda/conv/direct.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::direct {

/// A row of the tile table.
struct Tile {
  int positions, columns, thread_positions, thread_columns;
  int stage_bytes;  ///< of one of the three stages: decides how many blocks share an SM's 227 KB
  double rate;      ///< FFMA issue rate relative to the best tile, measured on an H200
  [[nodiscard]] constexpr int threads() const { return positions / thread_positions * (columns / thread_columns); }
};

inline constexpr std::array<Tile, 8> kTiles32 = {{
    {128, 128, 4, 16, 33 * 1024, 1.00},
    {128, 64, 4, 16, 33 * 1024, 0.93},
    {128, 64, 4, 16, 18 * 1024, 0.95},  // four blocks an SM: one's stores behind another's sums
    {256, 64, 8, 8, 33 * 1024, 0.95},
    {128, 32, 4, 16, 9 * 1024, 0.90},
    {256, 32, 8, 8, 18 * 1024, 0.90},
    {128, 16, 4, 4, 18 * 1024, 0.60},  // many small blocks: for problems that would leave SMs idle
    {512, 4, 4, 4, 18 * 1024, 0.55},   // one to four channels out
}};
inline constexpr std::array<Tile, 2> kTiles64 = {{{128, 64, 4, 8, 33 * 1024, 1.0}, {128, 16, 4, 4, 18 * 1024, 0.7}}};

/// The tile with the least estimated time: whole waves of two blocks an SM.
template <std::size_t kCount>
[[nodiscard]] std::size_t choose_tile(const std::array<Tile, kCount>& tiles, const TapGemm& form, int sm_count) {
  std::size_t best = 0;
  double best_time = 1e300;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Tile& tile = tiles[i];
    const double blocks = static_cast<double>(form.N * form.G) *
                          static_cast<double>((form.position_count + tile.positions - 1) / tile.positions) *
                          static_cast<double>((form.columns + tile.columns - 1) / tile.columns);
    const double waves = std::max(1.0, blocks / (2.0 * sm_count));
    const double time = (waves < 8 ? std::ceil(waves) : waves) * tile.positions * tile.columns / tile.rate;
    if (time < best_time) best_time = time, best = i;
  }
  return best;
}

inline constexpr int kStepProducts = 64;  // (row, tap) pairs of a step: enough work between barriers

/// Cuts gemm_k so that a stage fits. The last resort, one row, plane and tap, fits any problem.
[[nodiscard]] inline Steps make_steps(const TapGemm& form, const Tile& tile, int word_bytes) {
  Steps steps{};
  auto set = [&](std::int64_t rows, std::int64_t planes, std::int64_t taps) {
    steps.rows = static_cast<int>(rows);
    steps.planes = static_cast<int>(planes);
    steps.taps = static_cast<int>(taps);
    std::int64_t window = tile.positions + (taps - 1) * form.tap_step;
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
  std::int64_t taps = form.taps, planes = form.planes;
  while (taps > 1 && ((taps - 1) * form.tap_step > 2 * tile.positions || !set(1, 1, taps))) taps = (taps + 1) / 2;
  while (planes > 1 && !set(1, planes, taps)) planes = (planes + 1) / 2;
  std::int64_t rows = std::clamp<std::int64_t>(kStepProducts / (taps * planes), 1, form.rows);
  while (!set(rows, planes, taps) && rows > 1) --rows;
  rows = (form.rows + (form.rows + rows - 1) / rows - 1) / ((form.rows + rows - 1) / rows);  // steps of equal length
  set(rows, planes, taps);
  steps.row_steps = static_cast<int>((form.rows + rows - 1) / rows);
  steps.plane_steps = static_cast<int>((form.planes + planes - 1) / planes);
  steps.tap_steps = static_cast<int>((form.taps + taps - 1) / taps);
  steps.position_tiles = (form.position_count + tile.positions - 1) / tile.positions;
  steps.column_tiles = (form.columns + tile.columns - 1) / tile.columns;
  steps.blocks = form.N * form.G * steps.position_tiles * steps.column_tiles;
  steps.by_planes = FastDivide(static_cast<std::uint32_t>(steps.planes));
  steps.by_stride = FastDivide(static_cast<std::uint32_t>(form.out_stride));
  steps.by_gcd = FastDivide(static_cast<std::uint32_t>(form.out_gcd));
  steps.by_classes = FastDivide(static_cast<std::uint32_t>(form.classes));
  if (steps.blocks <= INT32_MAX) {
    steps.by_column_tiles = FastDivide(static_cast<std::uint32_t>(steps.column_tiles));
    steps.by_position_tiles = FastDivide(static_cast<std::uint32_t>(steps.position_tiles));
    steps.by_groups = FastDivide(static_cast<std::uint32_t>(form.G));
  }
  return steps;
}

/// packed[g][column tile][row step][plane step][tap step][tap][plane][row][kTileC] = the weight that meets them; zero in the
/// padding.
template <class T, class A>
__global__ void pack_weights_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ Steps steps,
                                    const __grid_constant__ ConvProblem problem, int tile_columns, bool is_forward,
                                    std::int64_t count, const T* __restrict__ w, A* __restrict__ packed) {
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    std::int64_t rest = i;
    auto take = [&rest](std::int64_t size) {
      const std::int64_t digit = rest % size;
      rest /= size;
      return digit;
    };
    const std::int64_t column_in_tile = take(tile_columns), row_in_step = take(steps.rows), plane_in_step = take(steps.planes);
    const std::int64_t window = take(steps.taps) + take(steps.tap_steps) * steps.taps;
    const std::int64_t plane = plane_in_step + take(steps.plane_steps) * steps.planes;
    const std::int64_t row = row_in_step + take(steps.row_steps) * steps.rows;
    const std::int64_t column = column_in_tile + take(steps.column_tiles) * tile_columns, g = rest;
    const std::int64_t a = is_forward ? column % form.classes : plane;
    const std::int64_t k = a + (is_forward ? form.taps - 1 - window : window) * form.phase_classes;
    const std::int64_t ci = g * in_per_group + (is_forward ? row : column);
    const std::int64_t co = is_forward ? column / form.classes : row;
    const bool exists = column < form.columns && row < form.rows && plane < form.planes && window < form.taps && k < problem.K;
    packed[i] = exists ? static_cast<A>(w[(ci * out_per_group + co) * problem.K + k]) : A(0);
  }
}

template <class T, int kTileP, int kTileC, int kThreadP, int kThreadC>
void launch(const ConvProblem& problem, ConvDirection direction, const TapGemm& form, const Tile& tile,
            const Epilogue& epilogue, const T* source, const T* w, const T* bias, T* out, int device, cudaStream_t stream) {
  using A = typename AccumulatorOf<T>::type;
  const Steps steps = make_steps(form, tile, sizeof(A));
  const std::int64_t count =
      form.G * steps.column_tiles * steps.row_steps * steps.plane_steps * steps.tap_steps * steps.weight_words;
  const Buffer packed(static_cast<std::size_t>(count) * sizeof(A), device);
  const auto pack_grid = static_cast<unsigned>(std::min<std::int64_t>((count + 255) / 256, 4096));
  pack_weights_kernel<T, A><<<pack_grid, 256, 0, stream>>>(form, steps, problem, kTileC, direction == ConvDirection::forward,
                                                           count, w, packed.as<A>());
  check_launch("conv direct: pack weights");
  const std::size_t stages = kStages * static_cast<std::size_t>(steps.source_words + steps.weight_words) * sizeof(A);
  const std::size_t store = static_cast<std::size_t>(kTileC < 16 ? kTileC : 16) * (kTileP + 1) * sizeof(A);
  const std::size_t shared = std::max(stages, store);
  auto* kernel = tap_gemm_kernel<T, kTileP, kTileC, kThreadP, kThreadC>;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(steps.blocks, INT32_MAX));
  kernel<<<grid, tile.threads(), shared, stream>>>(form, steps, epilogue, source, packed.as<A>(), bias, out);
  check_launch("conv direct");
}

/// The body of gather() for one dtype.
template <class T>
void gather_as(const ConvProblem& problem, ConvDirection direction, const T* source, const T* w, const T* bias, T* out,
               const Epilogue& epilogue, int device, cudaStream_t stream, int tile_index) {
  const TapGemm form = make_tap_gemm(problem, direction);
  const int sms = properties(device).sm_count;
  auto run = [&]<int kP, int kC, int kTP, int kT>(const Tile& tile) {
    launch<T, kP, kC, kTP, kT>(problem, direction, form, tile, epilogue, source, w, bias, out, device, stream);
  };
  const auto pick = [&](const auto& tiles) {
    return tile_index >= 0 ? std::min(static_cast<std::size_t>(tile_index), tiles.size() - 1) : choose_tile(tiles, form, sms);
  };
  if constexpr (std::is_same_v<T, double>) {
    const std::size_t i = pick(kTiles64);
    if (i == 0) return run.template operator()<128, 64, 4, 8>(kTiles64[i]);
    return run.template operator()<128, 16, 4, 4>(kTiles64[i]);
  } else {
    const std::size_t i = pick(kTiles32);
    switch (i) {
      case 0:
        return run.template operator()<128, 128, 4, 16>(kTiles32[i]);
      case 1:
      case 2:
        return run.template operator()<128, 64, 4, 16>(kTiles32[i]);
      case 3:
        return run.template operator()<256, 64, 8, 8>(kTiles32[i]);
      case 4:
        return run.template operator()<128, 32, 4, 16>(kTiles32[i]);
      case 5:
        return run.template operator()<256, 32, 8, 8>(kTiles32[i]);
      case 6:
        return run.template operator()<128, 16, 4, 4>(kTiles32[i]);
      default:
        return run.template operator()<512, 4, 4, 4>(kTiles32[i]);
    }
  }
}

}  // namespace polyphase::cuda::direct
