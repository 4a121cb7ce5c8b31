#pragma once
// The depthwise kernels for f32, D = 1 and strides that divide a 16-byte vector: forward and dgrad. Device code of vector.cu.
// Read kernel.cuh first, which computes every other shape.
//
// A thread computes whole 16-byte vectors of the row that is written: four neighbouring elements, U = 4/S low-rate positions.
// Vectors begin at multiples of 16 bytes, so the phase of a row's first output varies. The taps are shifted by sigma, the steps
// up to the next phase 0, so that every vector of the row uses the same taps (t is the vector's first output, r < S, u < U):
//   forward  y[t + u*S + r] = sum over j of x[(t + P + sigma)/S + u - (steps - 1) + j] * w[r + (steps - 1 - j)*S - sigma]
//   dgrad    x[i + e]       = sum over j, r of y[S*(i + e + j) + r - P] * w[r + j*S]
// Only the first and the last step lack some r. The row that is read passes through shared memory: word by word from any
// element in forward, in chunks of 16 bytes in dgrad, which has an instance for each of the four offsets of a row in its first
// chunk. Results are stored directly to memory. Bytes: x and y once. No division, no output stage.

#include <cstdint>

#include "cuda/conv/depthwise/chunk_stage.cuh"
#include "cuda/conv/depthwise/vector.hpp"
#include "cuda/conv/depthwise/word_stage.cuh"
#include "cuda/conv/epilogue/light.cuh"
#include "cuda/kernel/dependent_launch.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kVectorLine = kLineBytes / 4;  // elements in a line of memory
inline constexpr int kVectorStages = 2;             // per tile if dgrad adds rows; wgrad has its own number

/// The most steps per row; each number is an instance (dgrad: every second).
template <int S>
inline constexpr int kMostSteps = S == 1 ? 12 : 8;
/// Vectors of a thread.
inline constexpr int kVectors = 4;  // in forward and wgrad
inline constexpr int kDgradVectors = 2;

/// sums = light(sums), if there is a light activation.
template <int V>
__device__ __forceinline__ void activate(const LightActivation& light, float (&sums)[V][4]) {
  if (!light.is_there) return;
#pragma unroll
  for (int i = 0; i < 4 * V; ++i) sums[i / 4][i % 4] = light(sums[i / 4][i % 4]);
}

template <int V>
__device__ __forceinline__ void fill(float (&sums)[V][4], float value) {
#pragma unroll
  for (int i = 0; i < 4 * V; ++i) sums[i / 4][i % 4] = value;
}

/// sums[v][u*S + r] += sum over j < kCount of window(v, u + j) * taps[j*S + r]; the first step without r >= first_end, the last
/// without r < last_begin. `stage` is the window of the first vector; the next vector's window is 32*U further on.
template <int S, int kCount, int V>
__device__ __forceinline__ void add_steps(const float* stage, const float* taps, int first_end, int last_begin,
                                          float (&sums)[V][4]) {
  constexpr int U = 4 / S;
  float window[V][((kCount + U - 2) / U + 1) * U];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (j == 0 || (j - 1) % U == 0) {
      const int group = (j + U - 1) / U;
#pragma unroll
      for (int v = 0; v < V; ++v) read_words<U>(stage + (v * 32 + group) * U, window[v] + group * U);
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

/// Computes a tile of one row of y. Shared memory: taps (steps x S), x. kPlain: the kernel has no epilogue and none of its
/// instructions. Pointers are not __restrict__: the compiler could move loads of constant data before the wait.
template <int S, bool kPlain>
__global__ void __launch_bounds__(kVectorThreads, 8)
    vector_forward_kernel(const __grid_constant__ VectorPlan plan, const float* x, const float* w, const float* bias, float* y,
                          const __grid_constant__ Epilogue epilogue) {
  constexpr int V = kVectors, U = 4 / S;
  extern __shared__ __align__(16) unsigned char memory[];
  float* const taps = reinterpret_cast<float*>(memory);
  float* const stage = taps + plan.tap_words;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int row = static_cast<int>(plan.by_tiles.divide(blockIdx.x)), tile = static_cast<int>(blockIdx.x) - row * plan.tiles;
  const int channel = row - static_cast<int>(plan.by_channels.divide(static_cast<unsigned>(row)) * plan.by_channels.divisor);
  float* const to = y + static_cast<std::int64_t>(row) * plan.L_out;
  const float* const from = x + static_cast<std::int64_t>(plan.by_outputs.divide(static_cast<unsigned>(row))) * plan.L_in;

  const int t_begin = tile * threads * V * 4 - misalignment(to, kVectorLine);
  const int sigma = -(t_begin + plan.P) & (S - 1);
  const int steps = (plan.K + sigma + S - 1) / S;
  const int x_begin = (t_begin + plan.P + sigma) / S - (steps - 1);  // exact
  wait_for_grid_before();
  fetch_words<V * U>(from, plan.L_in, x_begin, threads * V * U + steps - 1, stage);
  __pipeline_commit();
  const float offset = bias != nullptr ? bias[channel] : 0.0F;
  for (int slot = thread; slot < steps * S; slot += threads) {
    const int k = slot % S + (steps - 1 - slot / S) * S - sigma;
    taps[slot] = k >= 0 && k < plan.K ? w[static_cast<std::int64_t>(channel) * plan.K + k] : 0.0F;
  }
  __pipeline_wait_prior(0);
  __syncthreads();

  const int first_vector = thread / 32 * 32 * V + thread % 32;  // the others are 32 further on
  const int t = t_begin + first_vector * 4;
  if (t >= plan.L_out) return;
  float sums[V][4];
  with_count<kMostSteps<S>>(steps, [&](auto count) {
    fill(sums, offset);
    add_steps<S, decltype(count)::value>(stage + first_vector * U, taps, plan.K + sigma - (steps - 1) * S, sigma, sums);
  });
  const LightActivation light(epilogue);
  if constexpr (!kPlain) activate(light, sums);
  store_vectors(to, plan.L_out, t, sums);
  if (!kPlain && epilogue.is_needed() && !light.is_there)
    finish_stored_last<float>(epilogue, to, plan.L_out, t_begin + thread / 32 * 128 * V, 128 * V, channel, thread % 32, 32);
}

/// sums[v][e] += sum over j and r with j*S + r < K of window(kShift + S*(e + j) + r) * taps[j*S + r], K taps in kCount - 1 or
/// kCount steps: one instance for two counts, and one for each shift. `first` is the chunk where the first vector's window
/// begins in `stage`; the next vector's window is 32*S chunks further on.
template <int S, int kShift, int kCount, int V>
__device__ __forceinline__ void add_positions(const std::uint32_t* stage, int first, const float* taps, int K,
                                              float (&sums)[V][4]) {
  constexpr int kChunks = (kShift + S * (kCount + 3) + 3) / 4;
  float window[V][kChunks * 4];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    // The first chunks that step j needs and earlier steps did not.
    const int known = j == 0 ? 0 : (kShift + S * (j + 3) + 3) / 4;
#pragma unroll
    for (int chunk = known; chunk < (kShift + S * (j + 4) + 3) / 4; ++chunk) {
      const auto* from = reinterpret_cast<const float*>(stage) + chunk_place(first + chunk, S - 1) * 4;
#pragma unroll
      for (int v = 0; v < V; ++v) read_words<4>(from + v * 128 * S, window[v] + chunk * 4);
    }
    float weights[S];
    get_words(taps + j * S, weights);
#pragma unroll
    for (int r = 0; r < S; ++r) {
      if (j * S + r > (kCount - 2) * S && j * S + r >= K) continue;
#pragma unroll
      for (int i = 0; i < 4 * V; ++i) sums[i / 4][i % 4] += window[i / 4][kShift + (i % 4 + j) * S + r] * weights[r];
    }
  }
}

/// Computes a tile of one row of x, adding the M rows of y one after another. Shared memory: taps (M x steps x S, one step
/// more), stages of y.
template <int S, bool kPlain>
__global__ void __launch_bounds__(kVectorThreads, 7)
    vector_dgrad_kernel(const __grid_constant__ VectorPlan plan, const float* y, const float* w, const float* bias, float* x,
                        const __grid_constant__ Epilogue epilogue) {
  constexpr int V = kDgradVectors;
  extern __shared__ __align__(16) unsigned char memory[];
  float* const taps = reinterpret_cast<float*>(memory);
  std::uint32_t* const stages = reinterpret_cast<std::uint32_t*>(taps + plan.tap_words);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int row = static_cast<int>(plan.by_tiles.divide(blockIdx.x)), tile = static_cast<int>(blockIdx.x) - row * plan.tiles;
  const int channel = row - static_cast<int>(plan.by_channels.divide(static_cast<unsigned>(row)) * plan.by_channels.divisor);
  const int M = static_cast<int>(plan.by_outputs.divisor);
  float* const to = x + static_cast<std::int64_t>(row) * plan.L_in;
  const float* const from = y + static_cast<std::int64_t>(row) * M * plan.L_out;

  const int i_begin = tile * threads * V * 4 - misalignment(to, kVectorLine), y_begin = S * i_begin - plan.P;
  const int steps = (plan.K + S - 1) / S;
  wait_for_grid_before();
  const float offset = bias != nullptr ? bias[channel] : 0.0F;
  const int first_vector = thread / 32 * 32 * V + thread % 32;  // the others are 32 further on
  const auto row_of = [&](int m) { return from + static_cast<std::int64_t>(m) * plan.L_out; };
  const auto lead_of = [&](int m) { return misalignment(row_of(m) + y_begin, kVectorLine); };
  float sums[V][4];
  fill(sums, offset);
  pipeline<kVectorStages>(
      M,
      [&](int m, int stage) {
        const int lead = lead_of(m);
        fetch_chunks<kVectorThreads>(row_of(m), plan.L_out, y_begin - lead, plan.chunks + lead / 4, S - 1,
                                     stages + stage * plan.stage_words);
      },
      [&] {
        const float* of_m = w + static_cast<std::int64_t>(channel) * M * plan.K;
#pragma unroll 1
        for (int m = 0; m < M; ++m, of_m += plan.K) {
#pragma unroll 1
          for (int k = thread; k < steps * S; k += threads) taps[m * steps * S + k] = k < plan.K ? of_m[k] : 0.0F;
        }
      },
      [&](int m, int stage) {
        const std::uint32_t* window = stages + stage * plan.stage_words;
        const int lead = lead_of(m), first = lead / 4 + S * first_vector;
        with_count<3, 0>(lead % 4, [&](auto shift) {
          with_count<kMostSteps<S> / 2>((steps + 1) / 2, [&](auto pairs) {
            add_positions<S, decltype(shift)::value, 2 * decltype(pairs)::value>(window, first, taps + m * steps * S, plan.K,
                                                                                 sums);
          });
        });
      });
  const bool is_early = S < 4 && LightActivation(epilogue).is_there;  // S = 4 has no register to spare
  if constexpr (S < 4 && !kPlain) activate(LightActivation(epilogue), sums);
  store_vectors(to, plan.L_in, i_begin + first_vector * 4, sums);
  if (!kPlain && epilogue.is_needed() && !is_early)
    finish_stored_last<float>(epilogue, to, plan.L_in, i_begin + thread / 32 * 128 * V, 128 * V, channel, thread % 32, 32);
}

}  // namespace polyphase::cuda::depthwise
