#pragma once
// Copies rows of any alignment into shared memory, 16 bytes per copy.
//
// A chunk is 16 bytes of memory; eight chunks are a line. If lines of memory become lines of shared memory, a warp's copies
// take one request per line. A layout with planes or padding took three times as many on an H200 (docs/kernels/depthwise.md).
// Unaligned rows are copied from an aligned address: the reader of the stage skips the elements before its first.

#include <cuda_pipeline.h>

#include <cstdint>
#include <type_traits>

#include "cuda/conv/depthwise/row_stage.cuh"

namespace polyphase::cuda {

inline constexpr int kLineBytes = 128;

/// The place of chunk c in a stage: eight chunks that are swizzle + 1 = 2, 4 or 8 apart, which lanes read together, are in
/// different banks. Multiples of 8*(swizzle + 1) chunks may be added before or after.
__device__ __forceinline__ int chunk_place(int c, int swizzle) { return c ^ (c >> 3 & swizzle); }

/// Starts the copy of `chunks` chunks of a row from `begin` on, with zeros outside [0, length). row + begin must be 16-byte
/// aligned, preferably at the beginning of a line. Blocks of kThreads threads, a multiple of 64, are fastest. The data is ready
/// after the caller's next commit, wait and barrier.
template <int kThreads, class T>
__device__ __forceinline__ void fetch_chunks(const T* row, int length, int begin, int chunks, int swizzle,
                                             std::uint32_t* stage) {
  static_assert(kThreads % 64 == 0, "places repeat every 64 chunks");
  constexpr int kChunk = kVectorOf<T>;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (begin >= 0 && begin + chunks * kChunk <= length && threads == kThreads) {
    const T* from = row + begin + thread * kChunk;
    std::uint32_t* to = stage + chunk_place(thread, swizzle) * 4;
#pragma unroll 4
    for (int c = thread; c < chunks; c += kThreads, from += kThreads * kChunk, to += kThreads * 4)
      __pipeline_memcpy_async(to, from, 16);
    return;
  }
  // Chunks [low, high) are in the row.
  const int low = begin >= 0 ? 0 : min(chunks, (kChunk - 1 - begin) / kChunk);
  const int high = max(low, min(chunks, max(0, length - begin) / kChunk));
  const T* from = row + begin + thread * kChunk;
#pragma unroll 1
  for (int c = thread; c < high; c += threads, from += threads * kChunk) {
    if (c >= low) __pipeline_memcpy_async(stage + chunk_place(c, swizzle) * 4, from, 16);
  }
  const auto put = [&](int c) {
    T* const to = reinterpret_cast<T*>(stage + chunk_place(c, swizzle) * 4);
    const int at = begin + c * kChunk;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) to[i] = at + i >= 0 && at + i < length ? row[at + i] : T(0.0F);
  };
#pragma unroll 1
  for (int c = thread; c < low; c += threads) put(c);
#pragma unroll 1
  for (int c = high + thread; c < chunks; c += threads) put(c);
}

/// Runs compute(n, stage) for n = 0 .. count - 1, each after the barrier that makes its fetch(n, stage) visible. kStages - 1
/// fetches are outstanding meanwhile. prepare() runs once, during the first fetches.
template <int kStages, class Fetch, class Prepare, class Compute>
__device__ __forceinline__ void pipeline(int count, Fetch&& fetch, Prepare&& prepare, Compute&& compute) {
#pragma unroll
  for (int n = 0; n < kStages - 1; ++n) {
    if (n < count) fetch(n, n);
    __pipeline_commit();
  }
  prepare();
  int stage = 0, free_stage = kStages - 1;
  for (int n = 0; n < count; ++n) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // no thread still reads the free stage
    if (n + kStages - 1 < count) fetch(n + kStages - 1, free_stage);
    __pipeline_commit();
    compute(n, stage);
    free_stage = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

/// Calls run(integral_constant) for kLeast <= count <= kMost, so that loops over it unroll without tests.
template <int kMost, int kLeast = 1, class Run>
__device__ __forceinline__ void with_count(int count, Run&& run) {
  if constexpr (kMost == kLeast) {
    run(std::integral_constant<int, kMost>());
  } else {
    if (count < kMost) return with_count<kMost - 1, kLeast>(count, run);
    run(std::integral_constant<int, kMost>());
  }
}

}  // namespace polyphase::cuda
