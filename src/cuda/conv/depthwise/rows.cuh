#pragma once
// The input gradient that sums many rows into one or two (Conv1d with few output channels). Device code and launch, for rows.cu
// and rows_16bit.cu. Sums in f32.
//
// x[n,c,i] = sum over m, k of y[n, g*M + m, i + k - P] * w[c, m, k] for many rows m, g the group of channel c.
//
// A block has a tile of positions of all channels of a group; each of its warps adds every eighth row. Nothing waits except for
// memory, and a warp has several rows outstanding. A lane reads one vector of y, kVector numbers that begin where i - P is a
// multiple of kVector, and applies Snake to it if the source is activated. It takes the vectors behind it from the next lanes,
// and computes kVector positions; the last lanes have no next ones and compute nothing. The sums of the warps are added in
// order through shared memory, so the result has the same bits every run. Bytes: y and x once.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/conv/depthwise/rounded_snake.cuh"
#include "cuda/conv/depthwise/rows.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/vector.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {

inline constexpr int kRowWarps = 8;
inline constexpr int kRowsAhead = 8;  // rows that a warp has outstanding
inline constexpr int kRowBlocks = 2;  // per SM

/// Positions of a tile: the lanes with kVectors - 1 lanes behind them.
[[nodiscard]] constexpr int row_tile(int vector, int vectors) { return (33 - vectors) * vector; }

/// A launch, computed on the host.
struct RowsLaunch {
  int M, K, P;
  int G;                   // groups
  int length, out_length;  // row lengths of y and of x
  std::int64_t blocks;
  int tiles;
  SourceSnake snake;  // of y
};

/// Neighbours of a row, with zeros outside [0, length).
template <bool kAligned, int kVector, class T>
__device__ __forceinline__ Pack<T, kVector> read_vector(const T* __restrict__ row, int e, int length) {
  Pack<T, kVector> vector{};
  if constexpr (kAligned) {
    if (e >= 0 && e < length) vector = *reinterpret_cast<const Pack<T, kVector>*>(row + e);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      if (e + i >= 0 && e + i < length) vector.at[i] = row[e + i];
  }
  return vector;
}

/// Floats between the weights of two rows: room for `most` taps.
[[nodiscard]] constexpr int row_pitch(int most) { return (most + 3) / 4 * 4; }

/// Whether rows of y are whole vectors at multiples of a vector's bytes.
template <class T>
[[nodiscard]] bool has_whole_vectors(const ConvProblem& problem, const T* y, int vector) {
  return reinterpret_cast<std::uintptr_t>(y) % (static_cast<std::size_t>(vector) * sizeof(T)) == 0 &&
         problem.L_out % vector == 0;
}

/// The vector of the lane `behind` lanes further on.
template <class T, int kVector>
__device__ __forceinline__ Pack<T, kVector> vector_behind(const Pack<T, kVector>& own, int behind) {
  Pack<T, kVector> vector;
#pragma unroll
  for (int i = 0; i < kVector * static_cast<int>(sizeof(T)) / 4; ++i)
    reinterpret_cast<std::uint32_t*>(&vector)[i] =
        __shfl_down_sync(0xffffffffU, reinterpret_cast<const std::uint32_t*>(&own)[i], behind);
  return vector;
}

/// Computes the tiles of the block. `kAligned`: rows of y are whole vectors at multiples of a vector's bytes.
template <class T, int kVector, int kVectors, int kChannels, bool kAligned>
__global__ void __launch_bounds__(32 * kRowWarps, kRowBlocks)
    rows_kernel(const __grid_constant__ RowsLaunch launch, const __grid_constant__ Epilogue epilogue, const T* __restrict__ y,
                const T* __restrict__ w, const T* __restrict__ bias, T* x) {
  constexpr int kWords = kVector * kVectors, kMost = kWords - kVector + 1;  // taps
  constexpr int kPitch = row_pitch(kMost), kTile = row_tile(kVector, kVectors);
  using Snake = RoundedSnake<T>;
  __shared__ alignas(16) float parts[kChannels][kRowWarps][32 * kVector];
  extern __shared__ __align__(16) float weights[];  // (kChannels, M, kPitch)
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int M = launch.M, K = launch.K, before = (kVector - launch.P % kVector) % kVector;
  Snake* const snakes = reinterpret_cast<Snake*>(weights + kChannels * M * kPitch);  // (M)
  const bool is_active = launch.snake.alpha != nullptr;
  // There are fewer than 2^32 blocks; a 64-bit division would be a function call, which costs the caller registers.
  for (std::uint32_t block = blockIdx.x; block < launch.blocks; block += gridDim.x) {
    const std::uint32_t group = block / static_cast<std::uint32_t>(launch.tiles);    // of all samples
    const int own = static_cast<int>(group % static_cast<std::uint32_t>(launch.G));  // of the sample
    const int first = static_cast<int>(block - group * static_cast<std::uint32_t>(launch.tiles)) * kTile - before;
    const int e = first + kVector * lane - launch.P;  // a multiple of kVector
    const T* const rows = y + static_cast<std::int64_t>(group) * M * launch.length;
    float sums[kChannels][kVector] = {};
    bool has_weights = false;
#pragma unroll 1
    for (int m0 = warp; m0 < M; m0 += kRowsAhead * kRowWarps) {
      Pack<T, kVector> vectors[kRowsAhead];
#pragma unroll
      for (int a = 0; a < kRowsAhead; ++a) {
        const int m = m0 + a * kRowWarps;
        if (m >= M) break;
        vectors[a] = read_vector<kAligned, kVector>(rows + static_cast<std::int64_t>(m) * launch.length, e, launch.length);
      }
      if (!has_weights) {  // after the first rows, so that both loads overlap
        has_weights = true;
        for (int i = thread; i < kChannels * M * kPitch; i += 32 * kRowWarps) {
          const int row = i / kPitch, k = i % kPitch;
          if (k < K) weights[i] = convert<float>(w[(static_cast<std::int64_t>(own) * kChannels * M + row) * K + k]);
        }
        for (int m = thread; is_active && m < M; m += 32 * kRowWarps)
          snakes[m] = Snake(launch.snake.alpha, launch.snake.beta, own * M + m);
        __syncthreads();
      }
#pragma unroll
      for (int a = 0; a < kRowsAhead; ++a) {
        const int m = m0 + a * kRowWarps;
        if (m >= M) break;
        if (is_active) {
          if constexpr (kAligned) {  // a vector is inside or outside
            if (e >= 0 && e < launch.length) activate(snakes[m], vectors[a].at);
          } else {
            activate_inside(snakes[m], e, launch.length, vectors[a].at);
          }
        }
        T window[kWords];
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          const Pack<T, kVector> vector = v == 0 ? vectors[a] : vector_behind(vectors[a], v);
#pragma unroll
          for (int i = 0; i < kVector; ++i) window[v * kVector + i] = vector.at[i];
        }
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          alignas(16) float ws[kPitch];
          load_vector(weights + (c * M + m) * kPitch, ws);
#pragma unroll
          for (int k = 0; k < kMost; ++k) {
            if (k > kMost - kVector && k >= K) break;  // kMost - kVector < K <= kMost
#pragma unroll
            for (int p = 0; p < kVector; ++p) sums[c][p] += convert<float>(window[p + k]) * ws[k];
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
#pragma unroll
      for (int p = 0; p < kVector; p += 4)
        *reinterpret_cast<float4*>(&parts[c][warp][kVector * lane + p]) = {sums[c][p], sums[c][p + 1], sums[c][p + 2],
                                                                           sums[c][p + 3]};
    __syncthreads();
#pragma unroll 1
    for (int at = thread; at < kChannels * kTile; at += 32 * kRowWarps) {
      const int c = at / kTile, in_tile = at % kTile, i = first + in_tile, channel = own * kChannels + c;
      if (i < 0 || i >= launch.out_length) continue;
      float sum = parts[c][0][in_tile];
#pragma unroll
      for (int other = 1; other < kRowWarps; ++other) sum += parts[c][other][in_tile];
      T* const to = x + (static_cast<std::int64_t>(group) * kChannels + c) * launch.out_length + i;
      *to = epilogue.finish<T>(bias != nullptr ? sum + convert<float>(bias[channel]) : sum, channel, to);
    }
    __syncthreads();  // read before the next tile's sums are written
  }
}

template <class T, int kVector, int kVectors, int kChannels>
void launch_rows(const ConvProblem& problem, const T* y, const T* w, const T* bias, T* x, const SourceSnake& snake,
                 const Epilogue& epilogue, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  RowsLaunch launch{};
  launch.M = static_cast<int>(problem.channels_out_per_group()), launch.K = static_cast<int>(problem.K);
  launch.P = static_cast<int>(problem.P_l), launch.G = static_cast<int>(problem.G);
  launch.length = static_cast<int>(problem.L_out), launch.out_length = static_cast<int>(problem.L_in);
  launch.snake = snake;
  const std::int64_t before = (kVector - problem.P_l % kVector) % kVector;  // positions of the first tile that precede the row
  constexpr int kTile = row_tile(kVector, kVectors);
  launch.tiles = static_cast<int>((problem.L_in + before + kTile - 1) / kTile);
  launch.blocks = problem.N * problem.G * launch.tiles;
  const std::size_t of_row = kChannels * row_pitch(kVector * (kVectors - 1) + 1) * sizeof(float) +
                             (snake.alpha != nullptr ? sizeof(RoundedSnake<T>) : 0);
  const std::size_t shared = static_cast<std::size_t>(launch.M) * of_row;
  auto* kernel = rows_kernel<T, kVector, kVectors, kChannels, true>;
  if constexpr (kVector == 4)
    if (!has_whole_vectors<T>(problem, y, kVector)) kernel = rows_kernel<T, kVector, kVectors, kChannels, false>;
  allow_shared_memory(kernel, static_cast<std::int64_t>(shared));
  const auto grid = static_cast<unsigned>(std::min(launch.blocks, kMostBlocks));
  kernel<<<grid, 32 * kRowWarps, shared, stream>>>(launch, epilogue, y, w, bias, x);
  check_launch("conv depthwise: many rows");
}

/// rows_dgrad() for one element type.
template <class T>
void rows_dgrad_as(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                   const SourceSnake& snake, const Epilogue& epilogue, cudaStream_t stream) {
  const auto launch = [&]<int kVector, int kVectors>(std::integral_constant<int, kVector>,
                                                     std::integral_constant<int, kVectors>) {
    const auto run = [&]<int kChannels>(std::integral_constant<int, kChannels>) {
      launch_rows<T, kVector, kVectors, kChannels>(problem, static_cast<const T*>(y), static_cast<const T*>(w),
                                                   static_cast<const T*>(bias), static_cast<T*>(x), snake, epilogue, stream);
    };
    if (problem.C_in == problem.G) return run(std::integral_constant<int, 1>{});
    run(std::integral_constant<int, 2>{});
  };
  constexpr std::integral_constant<int, 4> kQuad;
  if constexpr (sizeof(T) == 2) {
    constexpr std::integral_constant<int, 8> kEight;
    if (problem.K >= 2 && has_whole_vectors(problem, static_cast<const T*>(y), 8))
      return problem.K <= 9 ? launch(kEight, std::integral_constant<int, 2>{})
                            : launch(kEight, std::integral_constant<int, 3>{});
  }
  switch (row_quads(problem)) {
    case 1:
      return launch(kQuad, std::integral_constant<int, 1>{});
    case 2:
      return launch(kQuad, std::integral_constant<int, 2>{});
    case 3:
      return launch(kQuad, std::integral_constant<int, 3>{});
    case 4:
      return launch(kQuad, std::integral_constant<int, 4>{});
    default:
      return launch(kQuad, std::integral_constant<int, 5>{});
  }
}

}  // namespace polyphase::cuda::depthwise
