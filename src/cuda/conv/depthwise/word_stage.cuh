#pragma once
// Copies rows of f32 of any alignment into shared memory word by word, and 16-byte vectors in both directions.
//
// A stage begins at any element of the row. A lane copies one word by cp.async, a warp one line of memory, so a shift between
// global and shared memory costs no register, no shuffle and no partial sector. chunk_stage.cuh copies 16 bytes at a time.

#include <cuda_pipeline.h>

#include <cstdint>

#include "cuda/conv/depthwise/row_stage.cuh"

namespace polyphase::cuda {

/// Copies a row's window to a stage: `words` elements from `begin` on, with zeros outside [0, length). Each thread copies kEach
/// words, then the remainder is copied. The data is ready after the caller's next commit, wait and barrier.
template <int kEach>
__device__ __forceinline__ void fetch_words(const float* row, int length, int begin, int words, float* stage) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lead = misalignment(row + begin, 32);  // a warp copies lines
  const int first = thread / 32 * 32 * kEach + thread % 32 - lead;
  if (begin >= 0 && begin + words <= length) {
    // A warp's words are neighbours, so that all but the first have addresses known at compile time.
    float* to = stage + first;
    const float* from = row + begin + first;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i > 0 || first >= 0) __pipeline_memcpy_async(to + i * 32, from + i * 32, 4);
    }
    for (int s = threads * kEach - lead + thread; s < words; s += threads)
      __pipeline_memcpy_async(stage + s, row + begin + s, 4);
    return;
  }
  const int low = min(words, max(0, -begin)), high = max(low, min(words, length - begin));  // inside the row
#pragma unroll 4
  for (int s = thread - lead; s < high; s += threads) {
    if (s >= low) __pipeline_memcpy_async(stage + s, row + begin + s, 4);
  }
  for (int s = thread; s < low; s += threads) stage[s] = 0;
  for (int s = high + thread; s < words; s += threads) stage[s] = 0;
}

struct alignas(16) RowVector {
  float element[4];
};

/// Starts the copy of kCount vectors, 32 vectors apart on both sides, the first from row[at ...), with zeros outside [0,
/// length). row + at is 16-byte aligned. Ready for this thread after its next commit and wait.
template <int kCount>
__device__ __forceinline__ void fetch_vectors(const float* row, int length, int at, float* to) {
  const float* from = row + at;
  if (at >= 0 && at + (32 * (kCount - 1) + 1) * 4 <= length) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) __pipeline_memcpy_async(to + n * 128, from + n * 128, 16);
    return;
  }
#pragma unroll 1
  for (int n = 0; n < kCount; ++n, at += 128, to += 128) {
    if (at >= 0 && at + 4 <= length) {
      __pipeline_memcpy_async(to, row + at, 16);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = at + i >= 0 && at + i < length ? row[at + i] : 0.0F;
    }
  }
}

/// row[at ...) <- kCount vectors, 32 vectors apart, inside [0, length) only. row + at is 16-byte aligned.
template <int kCount>
__device__ __forceinline__ void store_vectors(float* row, int length, int at, const float (&values)[kCount][4]) {
  float* to = row + at;
  if (at >= 0 && at + (32 * (kCount - 1) + 1) * 4 <= length) {
#pragma unroll
    for (int n = 0; n < kCount; ++n)
      *reinterpret_cast<RowVector*>(to + n * 128) = {values[n][0], values[n][1], values[n][2], values[n][3]};
    return;
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = n * 128 + i;
      if (at + e >= 0 && at + e < length) to[e] = values[n][i];
    }
  }
}

/// Reads kCount neighbouring words of shared memory to `to`; the first is at a multiple of kCount.
template <int kCount>
__device__ __forceinline__ void read_words(const float* from, float* to) {
  float words[kCount];
  get_words(from, words);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = words[i];
}

}  // namespace polyphase::cuda
