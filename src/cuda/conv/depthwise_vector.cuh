#pragma once
// The depthwise kernels for D = 1 and strides that divide a 16-byte vector: forward and dgrad. Device code of
// depthwise_vector.cu; depthwise.cuh does every other shape and is the one to read first.
//
// A thread owns whole 16-byte vectors of the row that is written: E = 16/sizeof(T) neighbouring elements, U = E/S low-rate
// positions. Vectors begin where memory says, so a row's first output has some phase; the taps are shifted by sigma, the steps
// up to the next phase 0, and then every vector of the row meets the same taps (t the vector's first output, r < S, u < U):
//   forward  y[t + u*S + r] = sum over j of x[(t + P + sigma)/S + u - (steps - 1) + j] * w[r + (steps - 1 - j)*S - sigma]
//   dgrad    x[i + e]       = sum over j, r of y[S*(i + e + j) + r - P] * w[r + j*S]
// Only the first and the last step miss some r. The row that is read comes through shared memory (word_stage.cuh), the next
// tile while this one is computed; what is written goes straight to memory. Bytes: x and y once. No division, no output stage.

#include <cstdint>

#include "cuda/conv/depthwise_vector.hpp"
#include "cuda/conv/word_stage.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kLineBytes = 128;
inline constexpr int kVectorStages = 2;  // of a tile; wgrad has its own number

/// The most steps of a row; each number has its own code.
template <int S>
inline constexpr int kMostSteps = S == 1 ? 12 : 8;
/// Vectors of a thread of forward and wgrad, and how many of them it works on at a time: 16 sums.
inline constexpr int kVectors = 4;
template <class T>
inline constexpr int kTogether = static_cast<int>(sizeof(T));
inline constexpr int kDgradVectors = 2;

template <int V, int E>
__device__ __forceinline__ void fill(float (&sums)[V][E], float value) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int e = 0; e < E; ++e) sums[v][e] = value;
  }
}

/// sums[v][u*S + r] += sum over j < kCount of window(v, u + j) * taps[j*S + r]; the first step without r >= first_end, the last
/// without r < last_begin. `stage` is the window of the first vector, that of the next lies `next_words` on.
template <class T, int S, int kSkip, int kCount, int V>
__device__ __forceinline__ void add_steps(const std::uint32_t* stage, int next_words, const float* taps, int first_end,
                                          int last_begin, float (&sums)[V][kVectorOf<T>]) {
  constexpr int U = kVectorOf<T> / S, kWords = U / kPerWord<T>;
  Feed<T, U, kSkip> feeds[V];
  float window[V][((kCount + U - 2) / U + 1) * U];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (j == 0 || (j - 1) % U == 0) {
      const int group = (j + U - 1) / U;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const std::uint32_t* from = stage + v * next_words;
        feeds[v].next(
            group, [&](int g, std::uint32_t(&words)[kWords]) { get_words(from + g * kWords, words); }, window[v] + group * U);
      }
    }
    float weights[S];
    get_words(taps + j * S, weights);
#pragma unroll
    for (int r = 0; r < S; ++r) {
      if (j == 0 && r > 0 && r >= first_end) continue;
      if (j == kCount - 1 && r < S - 1 && r < last_begin) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) {
#pragma unroll
        for (int u = 0; u < U; ++u) sums[v][u * S + r] += window[v][u + j] * weights[r];
      }
    }
  }
}

/// A run of tiles of one row of y. Shared memory: taps (steps x S), stages of x.
template <class T, int S>
__global__ void __launch_bounds__(kVectorThreads, 8)
    vector_forward_kernel(const __grid_constant__ VectorPlan plan, const T* __restrict__ x, const T* __restrict__ w,
                          const T* __restrict__ bias, T* __restrict__ y) {
  constexpr int V = kVectors, E = kVectorOf<T>, U = E / S;
  extern __shared__ __align__(16) unsigned char memory[];
  float* const taps = reinterpret_cast<float*>(memory);
  std::uint32_t* const stages = reinterpret_cast<std::uint32_t*>(taps + plan.tap_words);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int row = static_cast<int>(plan.by_runs.divide(blockIdx.x));
  const int run = static_cast<int>(blockIdx.x) - row * static_cast<int>(plan.by_runs.divisor);
  const int channel = row - static_cast<int>(plan.by_channels.divide(static_cast<unsigned>(row)) * plan.by_channels.divisor);
  T* const to = y + static_cast<std::int64_t>(row) * plan.L_out;
  const T* const from = x + static_cast<std::int64_t>(plan.by_outputs.divide(static_cast<unsigned>(row))) * plan.L_in;

  const int first_tile = run * plan.tiles_per_run, width = threads * V * E;
  const int t_begin = first_tile * width - misalignment(to, kLineBytes / static_cast<int>(sizeof(T)));
  const int sigma = -(t_begin + plan.P) & (S - 1);
  const int steps = (plan.K + sigma + S - 1) / S;
  int x_begin = (t_begin + plan.P + sigma) / S - (steps - 1);  // exact
  const int skip = misalignment(from + x_begin, kPerWord<T>);
  x_begin -= skip;
  const int first_end = plan.K + sigma - (steps - 1) * S;
  const int low = threads * V * U;
  const int words = (low + steps - 1 + skip + kPerWord<T> - 1) / kPerWord<T>;
  const float offset = bias != nullptr ? static_cast<float>(bias[channel]) : 0.0F;
  const int first_vector = thread / 32 * 32 * V + thread % 32;  // the others 32 on
  const WordFetch<1, V * U / kPerWord<T>, T> window(from, plan.L_in, x_begin, words, 0);
  pipeline<kVectorStages>(
      min(plan.tiles_per_run, plan.tiles - first_tile),
      [&](int tile, int stage) { window.start(tile * low, stages + stage * plan.stage_words); },
      [&] {
        for (int slot = thread; slot < steps * S; slot += threads) {
          const int k = slot % S + (steps - 1 - slot / S) * S - sigma;
          taps[slot] = k >= 0 && k < plan.K ? static_cast<float>(w[static_cast<std::int64_t>(channel) * plan.K + k]) : 0.0F;
        }
      },
      [&](int tile, int stage) {
        constexpr int kTurn = kTogether<T>;
        int t = t_begin + tile * width + first_vector * E;
        const std::uint32_t* turn = stages + stage * plan.stage_words + first_vector * U / kPerWord<T>;
#pragma unroll 1
        for (int v = 0; v < V && t < plan.L_out; v += kTurn, t += kTurn * 32 * E, turn += kTurn * 32 * U / kPerWord<T>) {
          float sums[kTurn][E];
          with_skip<T>(skip, [&](auto known_skip) {
            with_count<kMostSteps<S>>(steps, [&](auto count) {
              fill(sums, offset);
              add_steps<T, S, decltype(known_skip)::value, decltype(count)::value>(turn, 32 * U / kPerWord<T>, taps, first_end,
                                                                                   sigma, sums);
            });
          });
          store_vectors(to, plan.L_out, t, sums);
        }
      });
}

/// sums[e] += sum over j < kCount and r of window(S*(e + j) + r) * taps[j*S + r], the last step without r >= last_end. `stage`
/// is the thread's first chunk in S planes of `pitch` chunks.
template <class T, int S, int kSkip, int kCount>
__device__ __forceinline__ void add_positions(const std::uint32_t* stage, int pitch, const float* taps, int last_end,
                                              float (&sums)[kVectorOf<T>]) {
  constexpr int E = kVectorOf<T>, U = E / S;
  Feed<T, E, kSkip> feed;
  float window[((kCount + E - 2) / U + 1) * E];
  const auto next = [&](int group) {
    feed.next(
        group, [&](int chunk, std::uint32_t(&words)[4]) { get_words(stage + ((chunk % S) * pitch + chunk / S) * 4, words); },
        window + group * E);
  };
#pragma unroll
  for (int group = 0; group < S; ++group) next(group);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (j > 0 && (j - 1) % U == 0) next((j + E - 1) / U);
    float weights[S];
    get_words(taps + j * S, weights);
#pragma unroll
    for (int r = 0; r < S; ++r) {
      if (j == kCount - 1 && r > 0 && r >= last_end) continue;
#pragma unroll
      for (int e = 0; e < E; ++e) sums[e] += window[(e + j) * S + r] * weights[r];
    }
  }
}

/// A run of tiles of one row of x, the M rows of y one after another. Shared memory: taps (M x steps x S), stages of y.
template <class T, int S>
__global__ void __launch_bounds__(kVectorThreads, 7)
    vector_dgrad_kernel(const __grid_constant__ VectorPlan plan, const T* __restrict__ y, const T* __restrict__ w,
                        const T* __restrict__ bias, T* __restrict__ x) {
  constexpr int V = kDgradVectors, E = kVectorOf<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  float* const taps = reinterpret_cast<float*>(memory);
  std::uint32_t* const stages = reinterpret_cast<std::uint32_t*>(taps + plan.tap_words);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int row = static_cast<int>(plan.by_runs.divide(blockIdx.x));
  const int run = static_cast<int>(blockIdx.x) - row * static_cast<int>(plan.by_runs.divisor);
  const int channel = row - static_cast<int>(plan.by_channels.divide(static_cast<unsigned>(row)) * plan.by_channels.divisor);
  const int M = static_cast<int>(plan.by_outputs.divisor);
  T* const to = x + static_cast<std::int64_t>(row) * plan.L_in;
  const T* const from = y + static_cast<std::int64_t>(row) * M * plan.L_out;

  const int first_tile = run * plan.tiles_per_run, width = threads * V * E;
  const int i_begin = first_tile * width - misalignment(to, kLineBytes / static_cast<int>(sizeof(T)));
  const int y_begin = S * i_begin - plan.P;
  const int steps = (plan.K + S - 1) / S;
  const int last_end = plan.K - (steps - 1) * S;
  const float offset = bias != nullptr ? static_cast<float>(bias[channel]) : 0.0F;
  const int first_vector = thread / 32 * 32 * V + thread % 32;  // the others 32 on
  const T *fetch_row = from, *row_of_y = from;
  int fetch_tile = 0, fetch_m = 0, tile = 0, m = 0;
  float sums[V][E];
  pipeline<kVectorStages>(
      min(plan.tiles_per_run, plan.tiles - first_tile) * M,
      [&](int, int stage) {
        const int begin = y_begin + fetch_tile * S * width;
        const int skip = misalignment(fetch_row + begin, kPerWord<T>);
        const int words = (S * (width + steps - 1) + skip + kPerWord<T> - 1) / kPerWord<T>;
        WordFetch<S, V * E * S / kPerWord<T>, T>(fetch_row, plan.L_out, begin - skip, words, plan.pitch)
            .start(0, stages + stage * plan.stage_words);
        fetch_row += plan.L_out;
        if (++fetch_m == M) fetch_row = from, fetch_m = 0, ++fetch_tile;
      },
      [&] {
        for (int slot = thread; slot < M * steps * S; slot += threads) {
          const int m = slot / (steps * S), k = slot - m * steps * S;
          taps[slot] = k < plan.K ? static_cast<float>(w[(static_cast<std::int64_t>(channel) * M + m) * plan.K + k]) : 0.0F;
        }
      },
      [&](int, int stage) {
        const int i = i_begin + tile * width + first_vector * E;
        const std::uint32_t* window = stages + stage * plan.stage_words + first_vector * 4;
        if (m == 0) fill(sums, offset);
        if (i < plan.L_in)
          with_skip<T>(misalignment(row_of_y + y_begin, kPerWord<T>), [&](auto skip) {
            with_count<kMostSteps<S>>(steps, [&](auto count) {
#pragma unroll
              for (int v = 0; v < V; ++v)
                add_positions<T, S, decltype(skip)::value, decltype(count)::value>(window + v * 128, plan.pitch,
                                                                                   taps + m * steps * S, last_end, sums[v]);
            });
          });
        row_of_y += plan.L_out;
        if (++m < M) return;
        store_vectors(to, plan.L_in, i, sums);
        row_of_y = from, m = 0, ++tile;
      });
}

}  // namespace polyphase::cuda::depthwise
