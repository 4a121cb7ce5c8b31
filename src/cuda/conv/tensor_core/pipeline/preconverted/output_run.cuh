#pragma once
// Copies staged outputs (store.cuh) to their rows in memory.

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

/// Neighbouring positions of one sample and channel, as they are written: base[e] receives element e of the channel in the
/// staging, for e from first to last. Where base is a multiple of 16 bytes, so is the staging.
template <class T>
struct OutputRun {
  T* base;
  int first, last;
};

/// How many elements an address is past a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ int misaligned(const T* address) {
  return static_cast<int>((reinterpret_cast<std::uintptr_t>(address) / sizeof(T)) & (16 / sizeof(T) - 1));
}

/// Writes whole vectors by bulk copies, one per lane, and the remainders at both ends of a run by several lanes each. Runs
/// whose alignment differs from that of their channel's first are written element by element. A warp (kByWarps) or a warpgroup
/// writes the runs of `channels` channels, which are `pitch` elements apart in the staging.
template <bool kByWarps, class T>
__device__ __forceinline__ void write_runs(const OutputRun<T>& run, const T* memory, int pitch, int channels, int classes,
                                           int thread) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  const int warp = thread / 32, lane = thread % 32;
  const bool aligned = misaligned(run.base) == 0, exists = lane < channels;
  const int whole = (run.first + kVector - 1) & -kVector, end = run.last & -kVector;
  if (exists && aligned && end > whole && (kByWarps || lane % 4 == warp))
    ptx::bulk_store(run.base + whole, ptx::shared_address(memory + lane * pitch + whole),
                    static_cast<std::uint32_t>((end - whole) * static_cast<int>(sizeof(T))));
  const auto base_bits = reinterpret_cast<unsigned long long>(run.base);
  if (__any_sync(0xffffffffU, exists && aligned && ((run.first | run.last) & (kVector - 1)) != 0)) {
    const int runs = kByWarps ? 16 / classes : 32, parts = kByWarps ? 2 * classes : 4;
    const int of = kByWarps ? lane & (runs - 1) : lane, part = kByWarps ? lane / runs : warp;
    T* base = reinterpret_cast<T*>(__shfl_sync(0xffffffffU, base_bits, of));
    const int first = __shfl_sync(0xffffffffU, run.first, of), last = __shfl_sync(0xffffffffU, run.last, of);
    const int head_end = min((first + kVector - 1) & -kVector, last), tail = max(last & -kVector, head_end);
    const bool ends = of < channels && misaligned(base) == 0;
#pragma unroll 4
    for (int i = part; i < 2 * kVector; i += parts) {
      const int e = i < kVector ? (first & -kVector) + i : tail + i - kVector;
      if (ends && e >= first && e < (i < kVector ? head_end : last)) base[e] = memory[of * pitch + e];
    }
  }
  for (std::uint32_t left = __ballot_sync(0xffffffffU, exists && !aligned); left != 0; left &= left - 1) {
    const int of = __ffs(static_cast<int>(left)) - 1;
    T* base = reinterpret_cast<T*>(__shfl_sync(0xffffffffU, base_bits, of));
    const int first = __shfl_sync(0xffffffffU, run.first, of), last = __shfl_sync(0xffffffffU, run.last, of);
    for (int e = first + (kByWarps ? lane : thread); e < last; e += kByWarps ? 32 : 128) base[e] = memory[of * pitch + e];
  }
}

}  // namespace polyphase::cuda::tensor_core
