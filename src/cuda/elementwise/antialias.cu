// Upsampling by 2, Snake, downsampling by 2, with u and d the filters of 12 taps and x one row of L:
//   v[s] = 2 sum over i of u[s + 5 - 2i] x[clamp(i, 0, L - 1)]                                             0 <= s < 2L
//   w[s] = v[s] + sin(alpha v[s])^2/beta,   out[t] = sum over k of d[k] w[clamp(2t + k - 5, 0, 2L - 1)]
// Positions s are stored as two rows, even (s = 2m) and odd (2m + 1): six taps each of either filter. The backward pass does
// the steps in reverse: D = down^T g, D (1 + alpha sin(2 alpha v)/beta), then up^T; v is recomputed from x.
//
// A block computes kOutputs outputs of a row. It reads their inputs once, with 6 before and 6 after them, into shared memory,
// which also holds the doubled rate. A thread computes 4 neighbours of either phase and then 4 outputs, each from 16-byte reads
// of shared memory. An f32 output moves 8 bytes (12 backward) and takes 24 multiply-adds and 2 sines. Shared memory: 6.3 KB
// (8.4 KB) of f32. cpu/elementwise/antialias.cpp is the same on the host.

#include "cuda/elementwise/antialias.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kTaps = TensorBackend::kAntialiasTaps;
constexpr int kBlock = 128;  // threads
constexpr int kEach = 4;     // neighbours per thread
constexpr int kPositions = kBlock * kEach;
constexpr int kBefore = 3;  // positions m before a block's first output, and 3 after its last
constexpr int kOutputs = kPositions - 2 * kEach;
constexpr int kInputs = kPositions + 2 * kEach;  // the first is input t0 - kBefore - 3
constexpr int kSumThreads = 128;
static_assert(kOutputs + 2 * kBefore <= kPositions && kOutputs % kEach == 0, "a block's outputs depend on its positions alone");

/// A small tensor of any floating-point dtype.
struct Parameter {
  const void* data;
  DType dtype;
};
Parameter parameter_of(const Tensor& tensor) { return {tensor.raw(), tensor.dtype()}; }

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
  std::int64_t L, C, tiles, count;  // count: tiles of all rows
  Divider by_tile, by_channel;
  Parameter alpha, beta, up, down;
  bool narrow, wide;  // wide: kEach outputs are one store
};

/// The sums for the gradients of alpha and beta, before the factors 1/beta and -1/beta^2.
struct Sums {
  double alpha = 0, beta = 0;
};

template <class A>
struct Shared {
  alignas(16) A x[kInputs];
  alignas(16) A even[kInputs];  // positions m = t0 - kBefore, ...
  alignas(16) A odd[kInputs];
  A up[kTaps];  // doubled
  A down[kTaps];
};
template <class A>
struct SharedBackward : Shared<A> {
  alignas(16) A g[kInputs];
  Sums warps[kBlock / 32];
};

/// A block's outputs t0, ..., t0 + n - 1 of row `row`.
struct Tile {
  std::int64_t row, channel, t0;
  int n, groups;  // groups of kEach positions that the outputs depend on

  __device__ __forceinline__ Tile(const Launch& launch, std::int64_t flat) {
    std::int64_t tile = flat;
    row = launch.by_tile.split(tile, launch.narrow);
    channel = row;
    launch.by_channel.split(channel, launch.narrow);
    t0 = tile * kOutputs;
    n = static_cast<int>(min(static_cast<std::int64_t>(kOutputs), launch.L - t0));
    groups = (n + 2 * kBefore + kEach - 1) / kEach;
  }
  [[nodiscard]] __device__ __forceinline__ int inputs() const { return (groups + 2) * kEach; }
  [[nodiscard]] __device__ __forceinline__ bool is_at_end(std::int64_t L) const { return t0 == 0 || t0 + n + kBefore >= L; }
};

/// Loads the taps, once per block.
template <class A>
__device__ __forceinline__ void load_taps(const Launch& launch, Shared<A>& shared) {
  if (threadIdx.x < kTaps) {
    shared.up[threadIdx.x] = A(2) * value_at<A>(launch.up, threadIdx.x);
    shared.down[threadIdx.x] = value_at<A>(launch.down, threadIdx.x);
  }
}

/// A row's elements around a tile; outside the row the end elements, or zeros.
template <bool kRepeatsEnds, class A, class T>
__device__ __forceinline__ void load_row(const T* __restrict__ row, const Tile& tile, std::int64_t L, A* to) {
  for (int j = static_cast<int>(threadIdx.x); j < tile.inputs(); j += kBlock) {
    const std::int64_t i = tile.t0 - kBefore - 3 + j, inside = min(max(i, std::int64_t{0}), L - 1);
    to[j] = kRepeatsEnds || i == inside ? convert<A>(row[inside]) : A(0);
  }
}

template <class A>
struct Phases {
  A even[kEach], odd[kEach];
};

/// 12 neighbours from j on, a multiple of kEach.
template <class A>
__device__ __forceinline__ void load_window(const A* from, int j, A (&window)[3 * kEach]) {
#pragma unroll
  for (int p = 0; p < 3; ++p) {
    const Pack<A, kEach> pack = *reinterpret_cast<const Pack<A, kEach>*>(from + j + p * kEach);
#pragma unroll
    for (int v = 0; v < kEach; ++v) window[p * kEach + v] = pack.at[v];
  }
}
template <class A>
__device__ __forceinline__ void store_pack(A* to, const A (&values)[kEach]) {
  Pack<A, kEach> pack;
#pragma unroll
  for (int v = 0; v < kEach; ++v) pack.at[v] = values[v];
  *reinterpret_cast<Pack<A, kEach>*>(to) = pack;
}

/// even[j + v] = sum over q < 6 of taps[11 - 2q]*x[j + v + q]; odd[j + v] = the same with taps[10 - 2q]*x[j + v + 1 + q].
template <class A>
__device__ __forceinline__ Phases<A> lengthened(const A* x, int j, const A* taps) {
  A window[3 * kEach];
  load_window(x, j, window);
  Phases<A> sum{};
#pragma unroll
  for (int q = 0; q < kTaps / 2; ++q) {
    const A of_even = taps[11 - 2 * q], of_odd = taps[10 - 2 * q];
#pragma unroll
    for (int v = 0; v < kEach; ++v) {
      sum.even[v] = fma(of_even, window[v + q], sum.even[v]);
      sum.odd[v] = fma(of_odd, window[v + 1 + q], sum.odd[v]);
    }
  }
  return sum;
}

/// to[v] = sum over q < 6 of taps[2q]*odd[j + v + q] + taps[2q + 1]*even[j + v + 1 + q].
template <class A>
__device__ __forceinline__ void shorten(const A* even, const A* odd, int j, const A* taps, A (&to)[kEach]) {
  A of_even[3 * kEach], of_odd[3 * kEach];
  load_window(even, j, of_even);
  load_window(odd, j, of_odd);
#pragma unroll
  for (int v = 0; v < kEach; ++v) to[v] = A(0);
#pragma unroll
  for (int q = 0; q < kTaps / 2; ++q) {
    const A first = taps[2 * q], second = taps[2 * q + 1];
#pragma unroll
    for (int v = 0; v < kEach; ++v) to[v] = fma(second, of_even[v + 1 + q], fma(first, of_odd[v + q], to[v]));
  }
}

/// The outputs j, ..., j + kEach - 1 of a tile.
template <class T, class A>
__device__ __forceinline__ void store_outputs(T* __restrict__ row, const Tile& tile, int j, bool wide,
                                              const A (&values)[kEach]) {
  Pack<T, kEach> pack;
#pragma unroll
  for (int v = 0; v < kEach; ++v) pack.at[v] = convert<T>(values[v]);
  if (wide && j + kEach <= tile.n) {
    *reinterpret_cast<Pack<T, kEach>*>(row + tile.t0 + j) = pack;
  } else {
#pragma unroll
    for (int v = 0; v < kEach; ++v)
      if (j + v < tile.n) row[tile.t0 + j + v] = pack.at[v];
  }
}

template <class A>
__device__ __forceinline__ A snake(A value, A alpha, A beta) {
  const A sine = sin(alpha * value);
  return value + sine * sine / beta;
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    antialiased_snake_kernel(const __grid_constant__ Launch launch, const T* __restrict__ x, T* __restrict__ out) {
  using A = MathOf<T>;
  __shared__ Shared<A> shared;
  load_taps(launch, shared);
  const int j = static_cast<int>(threadIdx.x) * kEach;
  for (std::int64_t flat = blockIdx.x; flat < launch.count; flat += gridDim.x) {
    const Tile tile(launch, flat);
    const A alpha = value_at<A>(launch.alpha, tile.channel), beta = value_at<A>(launch.beta, tile.channel);
    load_row<true>(x + tile.row * launch.L, tile, launch.L, shared.x);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < tile.groups) {
      Phases<A> of = lengthened(shared.x, j, shared.up);
#pragma unroll
      for (int v = 0; v < kEach; ++v) of.even[v] = snake(of.even[v], alpha, beta), of.odd[v] = snake(of.odd[v], alpha, beta);
      store_pack(shared.even + j, of.even);
      store_pack(shared.odd + j, of.odd);
    }
    __syncthreads();
    if (tile.is_at_end(launch.L)) {                                 // the end elements repeat
      const std::int64_t end = launch.L - 1 - (tile.t0 - kBefore);  // the place of position 2L - 1
      const A first = shared.even[kBefore], last = shared.odd[min(end, static_cast<std::int64_t>(kPositions))];
      for (int p = static_cast<int>(threadIdx.x); p < tile.groups * kEach; p += kBlock) {
        if (tile.t0 == 0 && p < kBefore) shared.even[p] = shared.odd[p] = first;
        if (p > end) shared.even[p] = shared.odd[p] = last;
      }
      __syncthreads();
    }
    if (j < tile.n) {
      A values[kEach];
      shorten(shared.even, shared.odd, j, shared.down, values);
      store_outputs(out + tile.row * launch.L, tile, j, launch.wide, values);
    }
    __syncthreads();  // before the next tile overwrites it
  }
}

__device__ __forceinline__ void sine_and_cosine(float u, float* sine, float* cosine) { sincosf(u, sine, cosine); }
__device__ __forceinline__ void sine_and_cosine(double u, double* sine, double* cosine) { sincos(u, sine, cosine); }

/// The gradient of snake(value) times its slope; adds the contributions to alpha and beta.
template <class A>
__device__ __forceinline__ A through_snake(A value, A gradient, A alpha, A beta, A& of_alpha, A& of_beta) {
  A sine, cosine;
  sine_and_cosine(alpha * value, &sine, &cosine);
  const A twice = A(2) * sine * cosine;
  of_alpha += gradient * (value * twice);
  of_beta += gradient * (sine * sine);
  return gradient * (A(1) + alpha * (twice / beta));
}

/// Gradients at the doubled rate, by a thread's position v. Those past the row's ends are added to the end element, which
/// repeats, and are then 0.
template <class A>
__device__ __forceinline__ void gather_ends(const Tile& tile, std::int64_t L, const SharedBackward<A>& shared, int j,
                                            Phases<A>& of) {
#pragma unroll
  for (int v = 0; v < kEach; ++v) {
    const std::int64_t m = tile.t0 - kBefore + j + v;
    const A* own = shared.g + j + v + 3;  // g[m]
    if (m < 0 || m >= L) of.even[v] = of.odd[v] = A(0);
    if (m == 0)
      for (int p = 0; p < 3; ++p)
        for (int k = 0; k <= 4 - 2 * p; ++k) of.even[v] = fma(shared.down[k], own[p], of.even[v]);
    if (m == L - 1)
      for (int p = 0; p < 3; ++p)
        for (int k = 7 + 2 * p; k < kTaps; ++k) of.odd[v] = fma(shared.down[k], own[-p], of.odd[v]);
  }
}

/// Adds the gradients of the inputs past the ends, which repeat the end elements, to the outputs j, ... of a tile.
template <class A>
__device__ __forceinline__ void add_ends(const Tile& tile, std::int64_t L, const SharedBackward<A>& shared, int j,
                                         A (&values)[kEach]) {
  const auto at = [&](std::int64_t s) {
    const std::int64_t place = s / 2 - tile.t0 + kBefore;
    return s < 0 || s >= 2 * L ? A(0) : s % 2 == 0 ? shared.even[place] : shared.odd[place];
  };
#pragma unroll
  for (int v = 0; v < kEach; ++v) {
    const std::int64_t i = tile.t0 + j + v;
    if (i == 0)
      for (int p = 0; p < 3; ++p)
        for (int k = 7 + 2 * p; k < kTaps; ++k) values[v] = fma(shared.up[k], at(k - 7 - 2 * p), values[v]);
    if (i == L - 1)
      for (int p = 0; p < 3; ++p)
        for (int k = 0; k <= 4 - 2 * p; ++k) values[v] = fma(shared.up[k], at(2 * L - 5 + 2 * p + k), values[v]);
  }
}

/// The sums over a block's threads, in thread 0.
template <int kThreadsOfBlock>
__device__ __forceinline__ Sums sum_of_threads(Sums sums, Sums* warps) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sums.alpha += __shfl_down_sync(0xffffffffU, sums.alpha, step);
    sums.beta += __shfl_down_sync(0xffffffffU, sums.beta, step);
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sums;
  __syncthreads();
  Sums total;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < kThreadsOfBlock / 32; ++warp) total.alpha += warps[warp].alpha, total.beta += warps[warp].beta;
  return total;
}

/// `dx` may be null, and so may `partial` (rows, tiles).
template <class T>
__global__ void __launch_bounds__(kBlock)
    antialiased_snake_backward_kernel(const __grid_constant__ Launch launch, const T* __restrict__ x,
                                      const T* __restrict__ gradient, T* __restrict__ dx, Sums* __restrict__ partial) {
  using A = MathOf<T>;
  __shared__ SharedBackward<A> shared;
  load_taps(launch, shared);
  const int j = static_cast<int>(threadIdx.x) * kEach;
  for (std::int64_t flat = blockIdx.x; flat < launch.count; flat += gridDim.x) {
    const Tile tile(launch, flat);
    const bool is_at_end = tile.is_at_end(launch.L);
    const A alpha = value_at<A>(launch.alpha, tile.channel), beta = value_at<A>(launch.beta, tile.channel);
    load_row<true>(x + tile.row * launch.L, tile, launch.L, shared.x);
    load_row<false>(gradient + tile.row * launch.L, tile, launch.L, shared.g);
    __syncthreads();
    A of_alpha(0), of_beta(0);
    if (static_cast<int>(threadIdx.x) < tile.groups) {
      Phases<A> of = lengthened(shared.g, j, shared.down);
      if (is_at_end) gather_ends(tile, launch.L, shared, j, of);
      const Phases<A> value = lengthened(shared.x, j, shared.up);
#pragma unroll
      for (int v = 0; v < kEach; ++v) {
        A more_alpha(0), more_beta(0);
        of.even[v] = through_snake(value.even[v], of.even[v], alpha, beta, more_alpha, more_beta);
        of.odd[v] = through_snake(value.odd[v], of.odd[v], alpha, beta, more_alpha, more_beta);
        const bool is_own = j + v >= kBefore && j + v < kBefore + tile.n;  // the others belong to another tile
        of_alpha += is_own ? more_alpha : A(0);
        of_beta += is_own ? more_beta : A(0);
      }
      store_pack(shared.even + j, of.even);
      store_pack(shared.odd + j, of.odd);
    }
    __syncthreads();
    if (dx != nullptr && j < tile.n) {
      A values[kEach];
      shorten(shared.even, shared.odd, j, shared.up, values);
      if (is_at_end) add_ends(tile, launch.L, shared, j, values);
      store_outputs(dx + tile.row * launch.L, tile, j, launch.wide, values);
    }
    if (partial != nullptr) {
      const Sums total = sum_of_threads<kBlock>({static_cast<double>(of_alpha), static_cast<double>(of_beta)}, shared.warps);
      if (threadIdx.x == 0) partial[flat] = total;
    }
    __syncthreads();  // before the next tile overwrites it
  }
}

__device__ __forceinline__ void store_parameter(const Parameter& parameter, std::int64_t i, double value) {
  void* const to = const_cast<void*>(parameter.data);
  switch (parameter.dtype) {
    case DType::f64:
      static_cast<double*>(to)[i] = value;
      break;
    case DType::f16:
      static_cast<__half*>(to)[i] = convert<__half>(value);
      break;
    case DType::bf16:
      static_cast<__nv_bfloat16*>(to)[i] = convert<__nv_bfloat16>(value);
      break;
    default:
      static_cast<float*>(to)[i] = convert<float>(value);
      break;
  }
}

/// The parameters' gradients from the sums of the tiles, one block per channel; the data of either may be null.
__global__ void __launch_bounds__(kSumThreads)
    add_tiles_kernel(const __grid_constant__ Launch launch, const Sums* __restrict__ partial, Parameter of_alpha,
                     Parameter of_beta) {
  __shared__ Sums warps[kSumThreads / 32];
  const std::int64_t channel = blockIdx.x, batches = launch.count / (launch.C * launch.tiles);
  Sums sums;
  for (std::int64_t p = threadIdx.x; p < batches * launch.tiles; p += kSumThreads) {
    const std::int64_t n = p / launch.tiles, tile = p - n * launch.tiles;
    const Sums& part = partial[(n * launch.C + channel) * launch.tiles + tile];
    sums.alpha += part.alpha;
    sums.beta += part.beta;
  }
  const Sums total = sum_of_threads<kSumThreads>(sums, warps);
  if (threadIdx.x != 0) return;
  const double b = value_at<double>(launch.beta, channel);
  if (of_alpha.data != nullptr) store_parameter(of_alpha, channel, total.alpha / b);
  if (of_beta.data != nullptr) store_parameter(of_beta, channel, -total.beta / (b * b));
}

Launch launch_of(const AntialiasedSnake& in, const void* out) {
  const std::int64_t L = in.x.size(2), C = in.x.size(1), tiles = (L + kOutputs - 1) / kOutputs;
  Launch launch{};
  launch.L = L, launch.C = C, launch.tiles = tiles, launch.count = in.x.size(0) * C * tiles;
  launch.by_tile = Divider(tiles), launch.by_channel = Divider(C);
  launch.alpha = parameter_of(in.alpha), launch.beta = parameter_of(in.beta);
  launch.up = parameter_of(in.up), launch.down = parameter_of(in.down);
  launch.narrow = launch.count < std::int64_t{1} << 31;
  launch.wide = L % kEach == 0 && is_aligned(out, std::min<std::size_t>(kEach * size_of(in.x.dtype()), 16));
  return launch;
}

unsigned blocks_of(const Launch& launch) { return grid_for(launch.count, 1); }

// Calls function(element) with the floating-point type of `dtype`.
template <class Function>
void dispatch_floating(DType dtype, const Function& function) {
  dispatch_element(dtype, [&]<class T>(T element) {
    if constexpr (!std::is_same_v<T, std::int64_t>) function(element);
  });
}

}  // namespace

void antialiased_snake(const Tensor& out, const AntialiasedSnake& in, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const Launch launch = launch_of(in, out.raw());
  dispatch_floating(out.dtype(), [&]<class T>(T) {
    antialiased_snake_kernel<<<blocks_of(launch), kBlock, 0, stream>>>(launch, static_cast<const T*>(in.x.raw()),
                                                                       static_cast<T*>(out.raw()));
  });
  check_launch("antialiased_snake");
}

void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in, const Tensor& gradient,
                                cudaStream_t stream) {
  void* const dx = out.x.defined() ? out.x.raw() : nullptr;
  const Launch launch = launch_of(in, dx);
  const bool has_sums = out.alpha.defined() || out.beta.defined();
  const Buffer partial(has_sums ? static_cast<std::size_t>(launch.count) * sizeof(Sums) : 0, in.x.device().index);
  Sums* const sums = has_sums ? partial.as<Sums>() : nullptr;
  if (launch.count > 0) {
    dispatch_floating(in.x.dtype(), [&]<class T>(T) {
      antialiased_snake_backward_kernel<<<blocks_of(launch), kBlock, 0, stream>>>(
          launch, static_cast<const T*>(in.x.raw()), static_cast<const T*>(gradient.raw()), static_cast<T*>(dx), sums);
    });
    check_launch("antialiased_snake_backward");
  }
  if (!has_sums || launch.C == 0) return;
  const auto target = [](const Tensor& tensor) { return tensor.defined() ? parameter_of(tensor) : Parameter{}; };
  add_tiles_kernel<<<static_cast<unsigned>(launch.C), kSumThreads, 0, stream>>>(launch, sums, target(out.alpha),
                                                                                target(out.beta));
  check_launch("antialiased_snake_backward: add tiles");
}

}  // namespace polyphase::cuda
