#pragma once
// Rows of any alignment into shared memory word by word, and windows out of it in vectors.
//
// A stage begins at any 4-byte word of the row: a lane copies one word by cp.async, a warp one line of memory, so a shift
// between global and shared memory costs no register, no shuffle and no partial sector. 16-bit rows whose window begins in the
// middle of a word are put right when they are read (Feed).

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <cstdint>

#include "cuda/conv/row_stage.cuh"

namespace polyphase::cuda {

/// Elements of T in a word.
template <class T>
inline constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));

/// Where word s of a stage lies. Its 16-byte chunks are dealt to kPlanes planes of `pitch` chunks, so that lanes which read
/// every kPlanes-th chunk read neighbours: with pitch = 8/kPlanes modulo 8 neither side meets a bank twice.
template <int kPlanes>
__device__ __forceinline__ int word_place(int s, int pitch) {
  static_assert(kPlanes == 1 || kPlanes == 2 || kPlanes == 4, "shifts");
  if constexpr (kPlanes == 1) return s;
  const int chunk = s >> 2;
  return ((chunk & (kPlanes - 1)) * pitch + (chunk >> (kPlanes / 2))) * 4 + (s & 3);
}

/// Copies a row's windows to stages: `words` words a window, zeros outside [0, length), kEach words a thread and the few that
/// are left. Windows begin at `begin` and whole multiples of 128 bytes after it; row + begin is word-aligned.
template <int kPlanes, int kEach, class T>
class WordFetch {
 public:
  __device__ __forceinline__ WordFetch(const T* __restrict__ row, int length, int begin, int words, int pitch)
      : row_(row), length_(length), begin_(begin), words_(words), pitch_(pitch) {
    lead_ = misalignment(row + begin, 128 / static_cast<int>(sizeof(T))) / kPer;  // a warp copies lines
    first_ = thread() / 32 * 32 * kEach + thread() % 32 - lead_;
    place_ = word_place<kPlanes>(first_, pitch);
  }

  /// Starts to copy the window that begins `later` elements after the first. Ready after the caller's next commit, wait and
  /// barrier.
  __device__ __forceinline__ void start(int later, std::uint32_t* stage) const {
    const int begin = begin_ + later;
    // Words [low, high) lie in the row.
    const int low = begin >= 0 ? 0 : min(words_, (kPer - 1 - begin) / kPer);
    const int high = max(low, min(words_, max(0, length_ - begin) / kPer));
    // A warp's words are neighbours, so that all but the first have addresses known at compile time.
    std::uint32_t* to = stage + place_;
    const T* from = row_ + begin + first_ * kPer;
    const int rest = threads() * kEach - lead_ + thread();
    if (low == 0 && high == words_) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (i > 0 || first_ >= 0) __pipeline_memcpy_async(to + i * (32 / kPlanes), from + i * 32 * kPer, 4);
      }
      for (int s = rest; s < words_; s += threads()) copy(begin, s, stage);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (first_ + i * 32 >= low && first_ + i * 32 < high)
        __pipeline_memcpy_async(to + i * (32 / kPlanes), from + i * 32 * kPer, 4);
    }
    for (int s = rest; s < high; s += threads()) {
      if (s >= low) copy(begin, s, stage);
    }
    for (int s = thread(); s < low; s += threads()) put_edge(begin, s, stage);
    for (int s = high + thread(); s < words_; s += threads()) put_edge(begin, s, stage);
  }

 private:
  static constexpr int kPer = kPerWord<T>;
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }

  __device__ __forceinline__ void copy(int begin, int s, std::uint32_t* stage) const {
    __pipeline_memcpy_async(stage + word_place<kPlanes>(s, pitch_), row_ + begin + s * kPer, 4);
  }
  __device__ __forceinline__ void put_edge(int begin, int s, std::uint32_t* stage) const {
    T* element = reinterpret_cast<T*>(stage + word_place<kPlanes>(s, pitch_));
    const int at = begin + s * kPer;
#pragma unroll
    for (int i = 0; i < kPer; ++i) element[i] = at + i >= 0 && at + i < length_ ? row_[at + i] : T(0.0F);
  }

  const T* row_;
  int length_, begin_, words_, pitch_;
  int lead_, first_, place_;
};

/// Runs compute(n, stage) for n = 0 .. count - 1, each behind the barrier that makes its fetch(n, stage) visible; kStages - 1
/// fetches are on their way meanwhile. prepare() runs once, while the first fetches are.
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
    __syncthreads();  // whoever read the free stage is done as well
    if (n + kStages - 1 < count) fetch(n + kStages - 1, free_stage);
    __pipeline_commit();
    compute(n, stage);
    free_stage = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

__device__ __forceinline__ float2 unpack(std::uint32_t word, __half) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
__device__ __forceinline__ float2 unpack(std::uint32_t word, __nv_bfloat16) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000U)};
}

/// The elements of a stage in order as f32, kCount a call, from its element kSkip (0 or 1) on. load(group, words) reads the
/// words of elements group*kCount and following; after a skip the last element of a group lies in the next one's first word.
template <class T, int kCount, int kSkip>
class Feed {
 public:
  template <class Load>
  __device__ __forceinline__ void next(int group, Load&& load, float* out) {
    std::uint32_t words[kWords];
    if constexpr (kSkip == 0) {
      load(group, words);
    } else {
      if (group == 0) load(0, ahead_);
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = ahead_[i];
      load(group + 1, ahead_);
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const float2 pair = unpack(words[i], T());
      if constexpr (kSkip == 0) out[2 * i] = pair.x;
      out[2 * i + 1 - kSkip] = pair.y;
      if constexpr (kSkip == 1) out[2 * i + 1] = unpack(i + 1 < kWords ? words[(i + 1) % kWords] : ahead_[0], T()).x;
    }
  }

 private:
  static constexpr int kWords = kCount / 2;
  static_assert(kCount % 2 == 0, "whole words");
  std::uint32_t ahead_[kWords];
};

template <int kCount>
class Feed<float, kCount, 0> {
 public:
  template <class Load>
  __device__ __forceinline__ void next(int group, Load&& load, float* out) {
    std::uint32_t words[kCount];
    load(group, words);
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = __uint_as_float(words[i]);
  }
};

/// Calls run(integral_constant) with 1 <= count <= kMost, so that loops over it unroll without tests.
template <int kMost, class Run>
__device__ __forceinline__ void with_count(int count, Run&& run) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_count<kMost - 1>(count, run);
  }
  run(std::integral_constant<int, kMost>());
}

/// Calls run(integral_constant) with a skip, known for elements as wide as a word.
template <class T, class Run>
__device__ __forceinline__ void with_skip(int skip, Run&& run) {
  if constexpr (kPerWord<T> == 1) {
    run(std::integral_constant<int, 0>());
  } else {
    if (skip == 0)
      run(std::integral_constant<int, 0>());
    else
      run(std::integral_constant<int, 1>());
  }
}

template <class T>
struct alignas(16) RowVector {
  T element[kVectorOf<T>];
};

/// Starts to copy kCount vectors, 32 vectors apart on both sides, the first row[at ...), zeros outside [0, length). row + at is
/// 16-byte aligned. Ready for this thread after its next commit and wait.
template <int kCount, class T>
__device__ __forceinline__ void fetch_vectors(const T* __restrict__ row, int length, int at, std::uint32_t* to) {
  constexpr int kVector = kVectorOf<T>;
  const T* from = row + at;
  if (at >= 0 && at + (32 * (kCount - 1) + 1) * kVector <= length) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) __pipeline_memcpy_async(to + n * 128, from + n * 32 * kVector, 16);
    return;
  }
#pragma unroll 1
  for (int n = 0; n < kCount; ++n, at += 32 * kVector, to += 128) {
    if (at >= 0 && at + kVector <= length) {
      __pipeline_memcpy_async(to, row + at, 16);
    } else {
      T* element = reinterpret_cast<T*>(to);
#pragma unroll
      for (int i = 0; i < kVector; ++i) element[i] = at + i >= 0 && at + i < length ? row[at + i] : T(0.0F);
    }
  }
}

/// row[at ...) <- kCount vectors, 32 vectors apart, inside [0, length) only. row + at is 16-byte aligned.
template <int kCount, class T>
__device__ __forceinline__ void store_vectors(T* __restrict__ row, int length, int at,
                                              const float (&values)[kCount][kVectorOf<T>]) {
  constexpr int kVector = kVectorOf<T>;
  RowVector<T> vectors[kCount];
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) vectors[n].element[i] = static_cast<T>(values[n][i]);
  }
  T* to = row + at;
  if (at >= 0 && at + (32 * (kCount - 1) + 1) * kVector <= length) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) *reinterpret_cast<RowVector<T>*>(to + n * 32 * kVector) = vectors[n];
    return;
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int e = n * 32 * kVector + i;
      if (at + e >= 0 && at + e < length) to[e] = vectors[n].element[i];
    }
  }
}

}  // namespace polyphase::cuda
