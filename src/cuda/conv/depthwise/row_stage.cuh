#pragma once
// Copies rows of any length and alignment between global and shared memory, 16 bytes of global memory at a time.
//
// A stage holds a window of a row as `S` planes: element e of the window is in plane e % S at index e / S. Elements that belong
// to neighbouring low-rate positions are then neighbours in a plane, and inner loops need no division.

#include <cstdint>
#include <type_traits>

#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda {

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kVectorOf = 16 / static_cast<int>(sizeof(T));

/// Number of elements between the previous multiple of `unit` elements and `pointer`.
template <class T>
__device__ __forceinline__ int misalignment(const T* pointer, int unit) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(pointer) / sizeof(T) % static_cast<unsigned>(unit));
}

/// kCount neighbouring words of shared memory; the first is at a multiple of min(kCount words, 16 bytes).
template <int kCount, class A>
__device__ __forceinline__ void put_words(A* to, const A (&values)[kCount]) {
  constexpr int kPreconverted = kCount * static_cast<int>(sizeof(A)) >= 16 ? kVectorOf<A> : kCount;
  struct alignas(kPreconverted * sizeof(A)) Pack {
    A word[kPreconverted];
  };
#pragma unroll
  for (int i = 0; i < kCount; i += kPreconverted) {
    Pack pack;
#pragma unroll
    for (int k = 0; k < kPreconverted; ++k) pack.word[k] = values[i + k];
    *reinterpret_cast<Pack*>(to + i) = pack;
  }
}
template <int kCount, class A>
__device__ __forceinline__ void get_words(const A* from, A (&values)[kCount]) {
  constexpr int kPreconverted = kCount * static_cast<int>(sizeof(A)) >= 16 ? kVectorOf<A> : kCount;
  struct alignas(kPreconverted * sizeof(A)) Pack {
    A word[kPreconverted];
  };
#pragma unroll
  for (int i = 0; i < kCount; i += kPreconverted) {
    const Pack pack = *reinterpret_cast<const Pack*>(from + i);
#pragma unroll
    for (int k = 0; k < kPreconverted; ++k) values[i + k] = pack.word[k];
  }
}

/// The planes of a stage; the pitch is a multiple of 8 words.
struct Planes {
  int S, pitch;
  FastDivide by_stride;
};

/// Moves elements e .. e + kCount - 1 of the window, e a multiple of kCount, into or out of the planes.
template <int kS, bool kPut, int kCount, class A>
__device__ __forceinline__ void move_fixed(const Planes& planes, A* stage, int e, A (&values)[kCount]) {
  constexpr int kEach = kCount / kS;
#pragma unroll
  for (int r = 0; r < kS; ++r) {
    A words[kEach];
    A* at = stage + r * planes.pitch + e / kS;
    if constexpr (kPut) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) words[i] = values[i * kS + r];
      put_words(at, words);
    } else {
      get_words(at, words);
#pragma unroll
      for (int i = 0; i < kEach; ++i) values[i * kS + r] = words[i];
    }
  }
}
template <bool kPut, int kCount, class A>
__device__ __forceinline__ void move_planes(const Planes& planes, A* stage, int e, A (&values)[kCount]) {
  if (planes.S == 1) return move_fixed<1, kPut>(planes, stage, e, values);
  if (planes.S == 2) return move_fixed<2, kPut>(planes, stage, e, values);
  if constexpr (kCount % 4 == 0) {
    if (planes.S == 4) return move_fixed<4, kPut>(planes, stage, e, values);
  }
  int u = static_cast<int>(planes.by_stride.divide(static_cast<std::uint32_t>(e)));
  int r = e - u * planes.S;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kPut)
      stage[r * planes.pitch + u] = values[i];
    else
      values[i] = stage[r * planes.pitch + u];
    if (++r == planes.S) r = 0, ++u;
  }
}

/// The function of load_window() that changes nothing.
struct Unchanged {
  template <int kCount, class A>
  __device__ __forceinline__ void apply(A (&)[kCount]) const {}
};

/// stage <- function(row[begin .. begin + count)), with zeros outside [0, length). row + begin is 16-byte aligned, count a
/// multiple of the vector length.
template <class T, class A, class Function = Unchanged>
__device__ __forceinline__ void load_window(const T* __restrict__ row, std::int64_t length, std::int64_t begin, int count,
                                            const Planes& planes, A* stage, const Function& function = {}) {
  constexpr int kVector = kVectorOf<T>;
  struct alignas(16) Pack {
    T element[kVector];
  };
  for (int e = static_cast<int>(threadIdx.x) * kVector; e < count; e += static_cast<int>(blockDim.x) * kVector) {
    const std::int64_t at = begin + e;
    A values[kVector];
    if (at >= 0 && at + kVector <= length) {
      const Pack pack = *reinterpret_cast<const Pack*>(row + at);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = static_cast<A>(pack.element[i]);
      function.apply(values);
    } else {
      const auto is_inside = [&](int i) { return at + i >= 0 && at + i < length; };
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = is_inside(i) ? static_cast<A>(row[at + i]) : A(0);
      if constexpr (!std::is_same_v<Function, Unchanged>) {
        function.apply(values);
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = is_inside(i) ? values[i] : A(0);
      }
    }
    move_planes<true>(planes, stage, e, values);
  }
}

/// row[begin .. begin + count) <- stage + offset, inside [0, length) only. Alignment as in load_window.
template <class T, class A>
__device__ __forceinline__ void store_window(T* __restrict__ row, std::int64_t length, std::int64_t begin, int count,
                                             const Planes& planes, A* stage, A offset) {
  constexpr int kVector = kVectorOf<T>;
  struct alignas(16) Pack {
    T element[kVector];
  };
  for (int e = static_cast<int>(threadIdx.x) * kVector; e < count; e += static_cast<int>(blockDim.x) * kVector) {
    const std::int64_t at = begin + e;
    if (at + kVector <= 0 || at >= length) continue;
    A values[kVector];
    move_planes<false>(planes, stage, e, values);
    Pack pack;
#pragma unroll
    for (int i = 0; i < kVector; ++i) pack.element[i] = static_cast<T>(values[i] + offset);
    if (at >= 0 && at + kVector <= length) {
      *reinterpret_cast<Pack*>(row + at) = pack;
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (at + i >= 0 && at + i < length) row[at + i] = pack.element[i];
      }
    }
  }
}

}  // namespace polyphase::cuda
