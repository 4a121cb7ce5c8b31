#pragma once
// The input gradient that sums many rows into one (Conv1d with few output channels). Device code and launch, for rows.cu and
// rows_16bit.cu. Sums in f32.
//
// x[n,c,i] = sum over m, k of y[n, g*M + m, i + k - P] * w[c, m, k] for many rows m, g the group of channel c.
//
// A block has a tile of positions; each of its warps adds every eighth row. Nothing waits except for memory, and a warp has
// several rows outstanding. A thread computes kVector positions that begin where i - P is a multiple of kVector: 16 bytes of y,
// or four numbers. It reads y in such vectors, and its neighbours' vectors from the L1 cache. The sums of the warps are added
// in order through shared memory, so the result has the same bits every run. Bytes: y and x once; the channels of a group read
// the same tile of y one after another, so that the later ones find it in L2.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/conv/depthwise/rows.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/vector.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::depthwise {

inline constexpr int kRowWarps = 8;
/// Blocks per SM: as many as registers allow without spilling. Code for GPUs before sm_90 needs more of them.
[[nodiscard]] constexpr int row_blocks([[maybe_unused]] int vectors, bool aligned, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if (vectors == 3 || vectors == 4) return 2;
#endif
  return aligned && bytes == 4 ? 3 : 2;
}

/// A launch, computed on the host.
struct RowsLaunch {
  int M, K, P;
  int G, channels;         // groups; channels of x in each
  int length, out_length;  // row lengths of y and of x
  std::int64_t blocks;
  int tiles;
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

struct RowPlace {
  std::uint32_t group, row;  // of y and of x, of all samples
  int channel;               // of a sample
  int tile;
};
/// What a block works on: the channels of a group, then the tiles, then the groups. There are fewer than 2^32 blocks; a 64-bit
/// division would be a function call, which costs the caller registers.
__device__ __forceinline__ RowPlace place_of(const RowsLaunch& launch, std::int64_t block) {
  const auto channels = static_cast<std::uint32_t>(launch.channels), tiles = static_cast<std::uint32_t>(launch.tiles);
  const std::uint32_t of_tile = static_cast<std::uint32_t>(block) / channels, group = of_tile / tiles;
  const std::uint32_t in_group = static_cast<std::uint32_t>(block) - of_tile * channels;
  const std::uint32_t of_sample = group % static_cast<std::uint32_t>(launch.G);
  return {group, group * channels + in_group, static_cast<int>(of_sample * channels + in_group),
          static_cast<int>(of_tile - group * tiles)};
}

/// Computes a tile of one row of x per block. `kAligned`: rows of y are whole vectors at multiples of a vector's bytes.
template <class T, int kVector, int kVectors, bool kAligned>
__global__ void __launch_bounds__(32 * kRowWarps, row_blocks(kVectors, kAligned, sizeof(T)))
    rows_kernel(const __grid_constant__ RowsLaunch launch, const __grid_constant__ Epilogue epilogue, const T* __restrict__ y,
                const T* __restrict__ w, const T* __restrict__ bias, T* x) {
  constexpr int kWords = kVector * kVectors, kMost = kWords - kVector + 1;  // taps
  constexpr int kPitch = row_pitch(kMost);
  constexpr int kAhead = kVectors <= 3 && kWords <= 16 ? 4 : 2;  // rows that a warp has outstanding
  constexpr int kTile = 32 * kVector;
  __shared__ alignas(16) float parts[kRowWarps][kTile];
  extern __shared__ __align__(16) float weights[];  // (M, kPitch)
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int M = launch.M, K = launch.K, skew = launch.P % kVector;
  for (std::int64_t block = blockIdx.x; block < launch.blocks; block += gridDim.x) {
    const RowPlace place = place_of(launch, block);
    const int channel = place.channel, first = place.tile * kTile + (skew == 0 ? 0 : skew - kVector);
    const int e = first + kVector * lane - launch.P;  // a multiple of kVector
    const T* const rows = y + static_cast<std::int64_t>(place.group) * M * launch.length;
    float sums[kVector] = {};
    bool has_weights = false;
#pragma unroll 1
    for (int m0 = warp; m0 < M; m0 += kAhead * kRowWarps) {
      alignas(16) T window[kAhead][kWords];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int m = m0 + a * kRowWarps;
        if (m >= M) break;
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
          reinterpret_cast<Pack<T, kVector>*>(window[a])[v] = read_vector<kAligned, kVector>(
              rows + static_cast<std::int64_t>(m) * launch.length, e + kVector * v, launch.length);
      }
      if (!has_weights) {  // after the first rows, so that both loads overlap
        has_weights = true;
        for (int i = static_cast<int>(threadIdx.x); i < M * kPitch; i += 32 * kRowWarps) {
          const int m = i / kPitch, k = i % kPitch;
          if (k < K) weights[i] = convert<float>(w[(static_cast<std::int64_t>(channel) * M + m) * K + k]);
        }
        __syncthreads();
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int m = m0 + a * kRowWarps;
        if (m >= M) break;
        alignas(16) float ws[kPitch];
        load_vector(weights + m * kPitch, ws);
#pragma unroll
        for (int k = 0; k < kMost; ++k) {
          if (k > kMost - kVector && k >= K) break;  // kMost - kVector < K <= kMost
#pragma unroll
          for (int p = 0; p < kVector; ++p) sums[p] += convert<float>(window[a][p + k]) * ws[k];
        }
      }
    }
#pragma unroll
    for (int p = 0; p < kVector; p += 4)
      *reinterpret_cast<float4*>(&parts[warp][kVector * lane + p]) = {sums[p], sums[p + 1], sums[p + 2], sums[p + 3]};
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x), i = first + thread;
    if (thread < kTile && i >= 0 && i < launch.out_length) {
      float sum = parts[0][thread];
#pragma unroll
      for (int other = 1; other < kRowWarps; ++other) sum += parts[other][thread];
      T* const to = x + static_cast<std::int64_t>(place.row) * launch.out_length + i;
      *to = epilogue.finish<T>(bias != nullptr ? sum + convert<float>(bias[channel]) : sum, channel, to);
    }
    __syncthreads();  // read before the next tile's sums are written
  }
}

template <class T, int kVector, int kVectors>
void launch_rows(const ConvProblem& problem, const T* y, const T* w, const T* bias, T* x, const Epilogue& epilogue,
                 cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  RowsLaunch launch{};
  launch.M = static_cast<int>(problem.channels_out_per_group()), launch.K = static_cast<int>(problem.K);
  launch.P = static_cast<int>(problem.P_l), launch.G = static_cast<int>(problem.G);
  launch.channels = static_cast<int>(problem.C_in / problem.G);
  launch.length = static_cast<int>(problem.L_out), launch.out_length = static_cast<int>(problem.L_in);
  const std::int64_t before = (kVector - problem.P_l % kVector) % kVector;  // positions of the first tile that precede the row
  constexpr int kTile = 32 * kVector;
  launch.tiles = static_cast<int>((problem.L_in + before + kTile - 1) / kTile);
  launch.blocks = problem.N * problem.C_in * launch.tiles;
  const auto grid = static_cast<unsigned>(std::min(launch.blocks, kMostBlocks));
  const std::size_t shared = static_cast<std::size_t>(launch.M) * row_pitch(kVector * (kVectors - 1) + 1) * sizeof(float);
  auto* kernel = rows_kernel<T, kVector, kVectors, true>;
  if constexpr (kVector == 4)
    if (!has_whole_vectors<T>(problem, y, kVector)) kernel = rows_kernel<T, kVector, kVectors, false>;
  allow_shared_memory(kernel, static_cast<std::int64_t>(shared));
  kernel<<<grid, 32 * kRowWarps, shared, stream>>>(launch, epilogue, y, w, bias, x);
  check_launch("conv depthwise: many rows");
}

/// rows_dgrad() for one element type.
template <class T>
void rows_dgrad_as(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x,
                   const Epilogue& epilogue, cudaStream_t stream) {
  const auto launch = [&]<int kVector, int kVectors>(std::integral_constant<int, kVector>,
                                                     std::integral_constant<int, kVectors>) {
    launch_rows<T, kVector, kVectors>(problem, static_cast<const T*>(y), static_cast<const T*>(w), static_cast<const T*>(bias),
                                      static_cast<T*>(x), epilogue, stream);
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
