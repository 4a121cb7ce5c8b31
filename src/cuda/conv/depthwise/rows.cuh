#pragma once
// The input gradient that sums many rows into one (Conv1d with few output channels). Device code and launch, for rows.cu and
// rows_16bit.cu. Sums in f32.
//
// x[n,c,i] = sum over m, k of y[n, c*M + m, i + k - P] * w[c*M + m, k] for many rows m.
//
// A block has a tile of positions; each of its warps adds every eighth row. Nothing waits except for memory, and a warp has
// several rows outstanding. A thread computes four positions that begin where i - P is a multiple of four. It reads y in quads,
// and its neighbours' quads from the L1 cache. The sums of the warps are added in order through shared memory, so the result
// has the same bits every run. Bytes: y and x once.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/conv/depthwise/rows.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/vector.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {

inline constexpr int kRowWarps = 8, kRowTile = 128;
/// Blocks per SM: as many as registers allow without spilling. Code for GPUs before sm_90 needs more of them.
[[nodiscard]] constexpr int row_blocks([[maybe_unused]] int quads, [[maybe_unused]] bool aligned) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if (aligned && (quads == 3 || quads == 4)) return 2;
#endif
  return 3;
}

/// A launch, computed on the host.
struct RowsLaunch {
  int M, K, P, C;
  int length, out_length;  // row lengths of y and of x
  std::int64_t blocks;
  int tiles;
};

/// Four neighbours of a row, with zeros outside [0, length).
template <bool kAligned, class T>
__device__ __forceinline__ Pack<T, 4> read_quad(const T* __restrict__ row, int e, int length) {
  Pack<T, 4> quad{};
  if constexpr (kAligned) {
    if (e >= 0 && e < length) quad = *reinterpret_cast<const Pack<T, 4>*>(row + e);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (e + i >= 0 && e + i < length) quad.at[i] = row[e + i];
  }
  return quad;
}

struct Row {
  std::int64_t row;
  int channel;
};
/// The row of x that a block works on. Aligned rows use 32-bit divisions, because a 64-bit division is a function call, which
/// costs the caller registers; unaligned rows have registers to spare.
template <bool kAligned>
__device__ __forceinline__ Row row_of(const RowsLaunch& launch, std::int64_t block) {
  using Index = std::conditional_t<kAligned, std::uint32_t, std::int64_t>;
  const Index row = static_cast<Index>(block) / static_cast<Index>(launch.tiles);
  return {static_cast<std::int64_t>(row), static_cast<int>(row % static_cast<Index>(launch.C))};
}

/// Computes a tile of one row of x per block. `kAligned`: rows of y are whole quads at multiples of a quad's bytes.
template <class T, int kQuads, bool kAligned>
__global__ void __launch_bounds__(32 * kRowWarps, row_blocks(kQuads, kAligned))
    rows_kernel(const __grid_constant__ RowsLaunch launch, const __grid_constant__ Epilogue epilogue, const T* __restrict__ y,
                const T* __restrict__ w, const T* __restrict__ bias, T* x) {
  constexpr int kWords = 4 * kQuads, kMost = kWords - 3;  // taps
  constexpr int kAhead = kQuads <= 3 ? 4 : 2;             // rows that a warp has outstanding
  __shared__ alignas(16) float parts[kRowWarps][kRowTile];
  extern __shared__ __align__(16) float weights[];  // (M, kWords)
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int M = launch.M, K = launch.K, skew = launch.P % 4;
  for (std::int64_t block = blockIdx.x; block < launch.blocks; block += gridDim.x) {
    const auto [row, channel] = row_of<kAligned>(launch, block);
    const int first = static_cast<int>(block - row * launch.tiles) * kRowTile + (skew == 0 ? 0 : skew - 4);
    const int e = first + 4 * lane - launch.P;  // a multiple of four
    const T* const rows = y + row * M * launch.length;
    float sums[4] = {};
    bool has_weights = false;
#pragma unroll 1
    for (int m0 = warp; m0 < M; m0 += kAhead * kRowWarps) {
      alignas(16) T window[kAhead][kWords];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int m = m0 + a * kRowWarps;
        if (m >= M) break;
#pragma unroll
        for (int q = 0; q < kQuads; ++q)
          reinterpret_cast<Pack<T, 4>*>(window[a])[q] =
              read_quad<kAligned>(rows + static_cast<std::int64_t>(m) * launch.length, e + 4 * q, launch.length);
      }
      if (!has_weights) {  // after the first rows, so that both loads overlap
        has_weights = true;
        for (int i = static_cast<int>(threadIdx.x); i < M * kWords; i += 32 * kRowWarps) {
          const int m = i / kWords, k = i % kWords;
          if (k < K) weights[i] = convert<float>(w[(static_cast<std::int64_t>(channel) * M + m) * K + k]);
        }
        __syncthreads();
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int m = m0 + a * kRowWarps;
        if (m >= M) break;
        alignas(16) float ws[kWords];
        load_vector(weights + m * kWords, ws);
#pragma unroll
        for (int k = 0; k < kMost; ++k) {
          if (k > kMost - 4 && k >= K) break;
#pragma unroll
          for (int p = 0; p < 4; ++p) sums[p] += convert<float>(window[a][p + k]) * ws[k];
        }
      }
    }
    *reinterpret_cast<float4*>(&parts[warp][4 * lane]) = {sums[0], sums[1], sums[2], sums[3]};
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x), i = first + thread;
    if (thread < kRowTile && i >= 0 && i < launch.out_length) {
      float sum = parts[0][thread];
#pragma unroll
      for (int other = 1; other < kRowWarps; ++other) sum += parts[other][thread];
      T* const to = x + row * launch.out_length + i;
      *to = epilogue.finish<T>(bias != nullptr ? sum + convert<float>(bias[channel]) : sum, channel, to);
    }
    __syncthreads();  // read before the next tile's sums are written
  }
}

template <class T, int kQuads>
void launch_stride1(const ConvProblem& problem, const T* y, const T* w, const T* bias, T* x, const Epilogue& epilogue,
                    cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  RowsLaunch launch{};
  launch.M = static_cast<int>(problem.channels_out_per_group()), launch.K = static_cast<int>(problem.K);
  launch.P = static_cast<int>(problem.P_l), launch.C = static_cast<int>(problem.C_in);
  launch.length = static_cast<int>(problem.L_out), launch.out_length = static_cast<int>(problem.L_in);
  const std::int64_t before = (4 - problem.P_l % 4) % 4;  // positions of the first tile that precede the row
  launch.tiles = static_cast<int>((problem.L_in + before + kRowTile - 1) / kRowTile);
  launch.blocks = problem.N * problem.C_in * launch.tiles;
  const auto grid = static_cast<unsigned>(std::min(launch.blocks, kMostBlocks));
  const std::size_t shared = static_cast<std::size_t>(launch.M) * kQuads * 16;
  const bool aligned = reinterpret_cast<std::uintptr_t>(y) % (4 * sizeof(T)) == 0 && problem.L_out % 4 == 0;
  auto* const kernel = aligned ? rows_kernel<T, kQuads, true> : rows_kernel<T, kQuads, false>;
  kernel<<<grid, 32 * kRowWarps, shared, stream>>>(launch, epilogue, y, w, bias, x);
  check_launch("conv depthwise: many rows");
}

/// rows_dgrad() for one element type.
template <class T>
void rows_dgrad_as(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                   const Epilogue& epilogue, cudaStream_t stream) {
  const auto launch = [&]<int kQuads>(std::integral_constant<int, kQuads>) {
    launch_stride1<T, kQuads>(problem, static_cast<const T*>(y), static_cast<const T*>(w), static_cast<const T*>(bias),
                              static_cast<T*>(x), epilogue, stream);
  };
  switch (row_quads(problem)) {
    case 1:
      return launch(std::integral_constant<int, 1>{});
    case 2:
      return launch(std::integral_constant<int, 2>{});
    case 3:
      return launch(std::integral_constant<int, 3>{});
    case 4:
      return launch(std::integral_constant<int, 4>{});
    default:
      return launch(std::integral_constant<int, 5>{});
  }
}

}  // namespace polyphase::cuda::depthwise
