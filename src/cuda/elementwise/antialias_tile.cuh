#pragma once
// What the kernels of antialias.cu do with a tile of a row: loads, both filters, stores. A warp computes up to 240 outputs of a
// row by itself. A thread loads 8 neighbouring inputs, computes 8 positions of either phase from them and the next thread's,
// and then 8 outputs. Threads pass on what the thread before them needs through shared memory.

#include <cstdint>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/ptx/opaque.cuh"
#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda::antialias {

constexpr int kTaps = TensorBackend::kAntialiasTaps;
constexpr int kWarps = 4;  // of a block
constexpr int kEach = 8;   // neighbours per thread
constexpr int kPack = 4;   // elements that are moved together
constexpr int kPositions = 32 * kEach;
constexpr int kBefore = 3;  // positions m before a tile's first output, and 3 after its last
constexpr int kOutputs = kPositions - 2 * kEach;
/// A tile's inputs begin kLead before its outputs. Position p is of inputs from p + kLate on.
constexpr int kLead = 8, kLate = kLead - kBefore - 3;
static_assert(kOutputs + 2 * kBefore + kTaps / 2 <= kPositions && kLate + kEach + kTaps / 2 <= 2 * kEach);

/// A small tensor of any floating-point dtype.
struct Parameter {
  const void* data;
  DType dtype;
};
inline Parameter parameter_of(const Tensor& tensor) { return {tensor.raw(), tensor.dtype()}; }

template <class A>
__device__ __forceinline__ A value_at(const Parameter& parameter, std::int64_t i) {
  switch (parameter.dtype) {
    case DType::f64:
      return convert<A>(static_cast<const double*>(parameter.data)[i]);
    case DType::f16:
      return convert<A>(static_cast<const __half*>(parameter.data)[i]);
    case DType::bf16:
      return convert<A>(static_cast<const __nv_bfloat16*>(parameter.data)[i]);
    default:
      return convert<A>(static_cast<const float*>(parameter.data)[i]);
  }
}

struct Launch {
  std::int64_t L, C, length, shares, count;  // length: of a share, whole tiles; shares: of a row; count: of all rows
  Divider by_share, by_channel;
  Parameter alpha, beta, up, down;
  bool narrow, wide;  // wide: rows are whole vectors of 16 bytes
};

/// The sums for the gradients of alpha and beta, before the factors 1/beta and -1/beta^2.
struct Sums {
  double alpha = 0, beta = 0;
};

/// Where element p of an array in shared memory is. Packs 8 to 15 of every 16 are swapped in pairs: threads that move two packs
/// each then use all banks.
constexpr __device__ int place_of(int p) { return (p / kPack ^ (p / (8 * kPack) & 1)) * kPack + p % kPack; }

template <class A>
using Array = A[kPositions];

/// The next thread's elements. The last thread has none and takes its own: no output depends on them, but numbers that are not
/// finite, which could be there, would take longer.
constexpr __device__ int next_of(int j) { return j + kEach < kPositions ? j + kEach : j; }

template <class A>
struct Taps {
  alignas(16) A up[kTaps];  // doubled
  alignas(16) A down[kTaps];

  /// By the block's first threads.
  __device__ __forceinline__ void load(const Launch& launch) {
    if (threadIdx.x >= kTaps) return;
    up[threadIdx.x] = A(2) * value_at<A>(launch.up, threadIdx.x);
    down[threadIdx.x] = value_at<A>(launch.down, threadIdx.x);
  }
};

/// What the threads of a warp pass on.
template <class A>
struct Staging {
  alignas(16) Array<A> x;
  alignas(16) Array<A> even;  // positions m = t0 - kBefore, ...
  alignas(16) Array<A> odd;
};
template <class A>
struct BackwardStaging : Staging<A> {
  alignas(16) Array<A> g;
};

/// A warp's share of a row: the tiles from `begin` to `end`.
struct Share {
  std::int64_t row, channel, begin, end;

  __device__ __forceinline__ Share(const Launch& launch, std::int64_t flat) {
    std::int64_t share = flat;
    row = launch.by_share.split(share, launch.narrow);
    channel = row;
    launch.by_channel.split(channel, launch.narrow);
    begin = share * launch.length;
    end = min(begin + launch.length, launch.L);
  }
};

/// Outputs t0, ..., t0 + n - 1 of a row.
struct Tile {
  std::int64_t t0;
  int n;

  __device__ __forceinline__ Tile(std::int64_t begin, std::int64_t L)
      : t0(begin), n(static_cast<int>(min(static_cast<std::int64_t>(kOutputs), L - begin))) {}
  /// Whether positions past the row's last are read.
  [[nodiscard]] __device__ __forceinline__ bool has_end(std::int64_t L) const { return t0 + n + kBefore >= L; }
};

/// alpha and beta of a channel: either half of the warp loads one.
template <class A>
struct Parameters {
  A alpha, beta;
  __device__ __forceinline__ Parameters(const Launch& launch, std::int64_t channel) {
    const bool is_first = threadIdx.x % 32 < 16;
    const A own = value_at<A>(
        {is_first ? launch.alpha.data : launch.beta.data, is_first ? launch.alpha.dtype : launch.beta.dtype}, channel);
    alpha = __shfl_sync(0xffffffffU, own, 0);
    beta = __shfl_sync(0xffffffffU, own, 16);
  }
};

/// Elements p, ..., p + kCount - 1 of an array, p a multiple of kPack.
template <int kCount, class A>
__device__ __forceinline__ void store_packs(A* to, int p, const A* values) {
#pragma unroll
  for (int first = 0; first < kCount; first += kPack) {
    Pack<A, kPack> pack;
#pragma unroll
    for (int v = 0; v < kPack; ++v) pack.at[v] = values[first + v];
    *reinterpret_cast<Pack<A, kPack>*>(to + place_of(p + first)) = pack;
  }
}
template <int kCount, class A>
__device__ __forceinline__ void load_packs(const A* from, int p, A* values) {
#pragma unroll
  for (int first = 0; first < kCount; first += kPack) {
    const Pack<A, kPack> pack = *reinterpret_cast<const Pack<A, kPack>*>(from + place_of(p + first));
#pragma unroll
    for (int v = 0; v < kPack; ++v) values[first + v] = pack.at[v];
  }
}

/// A row's elements j, ..., j + 15 from t0 - kLead on, j = kEach*lane; outside the row the end elements, or zeros. The first 8
/// are then in `staging`, too. `outputs`: the row's element t0 + j.
template <bool kRepeatsEnds, class A, class T>
__device__ __forceinline__ void load_window(const T* __restrict__ outputs, const Tile& tile, const Launch& launch,
                                            Array<A>& staging, A (&window)[2 * kEach]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, j = lane * kEach;
  const std::int64_t first = tile.t0 - kLead, own = first + j;
  const auto at = [&](std::int64_t i) {
    const std::int64_t inside = min(max(i, std::int64_t{0}), launch.L - 1);
    return kRepeatsEnds || i == inside ? convert<A>(outputs[inside - tile.t0 - j]) : A(0);
  };
  if (launch.wide) {
    if (own >= 0 && own + kEach <= launch.L) {
      constexpr int kVector = sizeof(T) == 2 ? 8 : 4;
#pragma unroll
      for (int v = 0; v < kEach; v += kVector) {
        const Pack<T, kVector> pack = *reinterpret_cast<const Pack<T, kVector>*>(outputs - kLead + v);
#pragma unroll
        for (int k = 0; k < kVector; ++k) window[v + k] = convert<A>(pack.at[k]);
      }
    } else {
#pragma unroll
      for (int v = 0; v < kEach; ++v) window[v] = at(own + v);
    }
    store_packs<kEach>(staging, j, window);
  } else {  // neighbouring threads load neighbouring elements
    int begin = lane;
    ptx::opaque(begin);  // what follows from it would take registers of the fast path
#pragma unroll
    for (int i = 0; i < kEach; ++i) staging[place_of(begin + 32 * i)] = at(first + begin + 32 * i);
    __syncwarp();
    load_packs<kEach>(staging, j, window);
  }
  __syncwarp();
  load_packs<kEach>(staging, next_of(j), window + kEach);
}

/// of_even[v] = sum over q < 6 of taps[11 - 2q]*window[kLate + v + q]; of_odd[v] = the same with taps[10 - 2q] and v + 1.
template <class A>
__device__ __forceinline__ void lengthen(const A (&window)[2 * kEach], const A* taps, A (&of_even)[kEach], A (&of_odd)[kEach]) {
  A tap[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) tap[k] = taps[k];
#pragma unroll
  for (int v = 0; v < kEach; ++v) of_even[v] = of_odd[v] = A(0);
#pragma unroll
  for (int q = 0; q < kTaps / 2; ++q) {
#pragma unroll
    for (int v = 0; v < kEach; ++v) {
      of_even[v] = fma(tap[11 - 2 * q], window[kLate + v + q], of_even[v]);
      of_odd[v] = fma(tap[10 - 2 * q], window[kLate + v + 1 + q], of_odd[v]);
    }
  }
}

/// A thread's positions j, ..., j + kEach - 1.
template <class A>
struct Phases {
  A even[kEach], odd[kEach];

  __device__ __forceinline__ void store(Staging<A>& staging, int j) const {
    store_packs<kEach>(staging.even, j, even);
    store_packs<kEach>(staging.odd, j, odd);
  }
  /// Positions before the row's first and after its last, `end`, become those.
  __device__ __forceinline__ void repeat_first() {
#pragma unroll
    for (int v = 0; v < kBefore; ++v) even[v] = odd[v] = even[kBefore];
  }
  __device__ __forceinline__ void repeat_last(const Staging<A>& staging, int j, int end) {
    const A last = staging.odd[place_of(end)];
    __syncwarp();  // the warp has read it, and may store
#pragma unroll
    for (int v = 0; v < kEach; ++v)
      if (j + v > end) even[v] = odd[v] = last;
  }
  /// to[v] = sum over q < 6 of taps[2q]*odd[v + q] + taps[2q + 1]*even[v + 1 + q]; from v + q = kEach on they are the next
  /// thread's.
  __device__ __forceinline__ void shorten(const Staging<A>& staging, int j, const A* taps, A (&to)[kEach]) const {
#pragma unroll
    for (int v = 0; v < kEach; ++v) to[v] = A(0);
    add_phase<0>(odd, staging.odd, j, taps, to);
    add_phase<1>(even, staging.even, j, taps, to);
  }

 private:
  /// to[v] += sum over q < 6 of taps[2q + kFirst]*phase[v + kFirst + q].
  template <int kFirst>
  static __device__ __forceinline__ void add_phase(const A (&own)[kEach], const Array<A>& staged, int j, const A* taps,
                                                   A (&to)[kEach]) {
    A next[kEach];
    load_packs<kEach>(staged, next_of(j), next);
#pragma unroll
    for (int q = 0; q < kTaps / 2; ++q) {
      const A tap = taps[2 * q + kFirst];
#pragma unroll
      for (int v = 0; v < kEach; ++v) {
        const int p = v + kFirst + q;
        to[v] = fma(tap, p < kEach ? own[p % kEach] : next[p % kEach], to[v]);
      }
    }
  }
};

/// The outputs j, ..., j + kEach - 1 of a tile, from `outputs` on, by all threads of the warp.
template <class T, class A>
__device__ __forceinline__ void store_outputs(T* __restrict__ outputs, const Tile& tile, bool wide, Array<A>& staging,
                                              const A (&values)[kEach]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, j = lane * kEach;
  if (wide) {
    if (j >= tile.n) return;
    constexpr int kVector = sizeof(T) == 2 ? 8 : 4;
#pragma unroll
    for (int first = 0; first < kEach; first += kVector) {
      if (kVector < kEach && j + first >= tile.n) break;
      A part[kVector];
#pragma unroll
      for (int v = 0; v < kVector; ++v) part[v] = values[first + v];
      *reinterpret_cast<Pack<T, kVector>*>(outputs + first) = rounded<T>(part);
    }
    return;
  }
  store_packs<kEach>(staging, j, values);
  __syncwarp();
  int begin = lane;
  ptx::opaque(begin);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = begin + 32 * i;
    if (t < tile.n) outputs[t - j] = convert<T>(staging[place_of(t)]);
  }
  __syncwarp();
}

}  // namespace polyphase::cuda::antialias
