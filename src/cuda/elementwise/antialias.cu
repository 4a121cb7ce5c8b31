// Upsampling by 2, Snake, downsampling by 2, with u and d the filters of 12 taps and x one row of L:
//   v[s] = 2 sum over i of u[s + 5 - 2i] x[clamp(i, 0, L - 1)]                                             0 <= s < 2L
//   w[s] = v[s] + sin(alpha v[s])^2/beta,   out[t] = sum over k of d[k] w[clamp(2t + k - 5, 0, 2L - 1)]
// Positions s are stored as two rows, even (s = 2m) and odd (2m + 1): six taps each of either filter. The backward pass does
// the steps in reverse: D = down^T g, D (1 + alpha sin(2 alpha v)/beta), then up^T; v is recomputed from x.
//
// An f32 output moves 8 bytes (12 backward) and takes 24 multiply-adds (36) and two Snakes (snake_function.cuh). Bound by
// instructions (docs/kernels/antialias.md). cpu/elementwise/antialias.cpp is the same on the host.

#include "cuda/elementwise/antialias.hpp"

#include <algorithm>
#include <initializer_list>

#include "cuda/elementwise/antialias_tile.cuh"
#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace antialias {
namespace {

constexpr int kSumThreads = 128;  // of add_shares_kernel

template <class T>
__global__ void __launch_bounds__(kWarps * 32, sizeof(T) == 8 ? 0 : 7)
    antialiased_snake_kernel(const __grid_constant__ Launch launch, const T* __restrict__ x, T* __restrict__ out) {
  using A = MathOf<T>;
  __shared__ Taps<A> taps;
  __shared__ Staging<A> of_warp[kWarps];
  taps.load(launch);
  __syncthreads();
  Staging<A>& staging = of_warp[threadIdx.x / 32];
  const int j = static_cast<int>(threadIdx.x) % 32 * kEach;
  for (std::int64_t flat = blockIdx.x * kWarps + threadIdx.x / 32; flat < launch.count; flat += gridDim.x * kWarps) {
    const Share share(launch, flat);
    const Parameters<A> parameters(launch, share.channel);
    const SnakeFunction<A, kIsHalf<T>> snake(parameters.alpha, parameters.beta);
    const std::int64_t first = share.row * launch.L + share.begin + j;
    const T* from = x + first;
    T* to = out + first;
    for (std::int64_t t0 = share.begin; t0 < share.end; t0 += kOutputs, from += kOutputs, to += kOutputs) {
      const Tile tile(t0, launch.L);
      Phases<A> of;
      {
        A window[2 * kEach];
        load_window<true>(from, tile, launch, staging.x, window);
        lengthen(window, taps.up, of.even, of.odd);
      }
      snake.apply(of.even);
      snake.apply(of.odd);
      if (t0 == 0 && j == 0) of.repeat_first();
      of.store(staging, j);
      __syncwarp();
      if (tile.has_end(launch.L)) {
        of.repeat_last(staging, j, static_cast<int>(launch.L - 1 - (t0 - kBefore)));
        of.store(staging, j);
        __syncwarp();
      }
      A values[kEach];
      of.shorten(staging, j, taps.down, values);
      store_outputs(to, tile, launch.wide, staging.x, values);
    }
  }
}

/// Gradients at the doubled rate, by a thread's position v. Those past the row's ends are added to the end element, which
/// repeats, and are then 0.
template <class A>
__device__ __forceinline__ void gather_ends(const Tile& tile, std::int64_t L, const BackwardStaging<A>& staging,
                                            const Taps<A>& taps, int j, A (&even)[kEach], A (&odd)[kEach]) {
#pragma unroll
  for (int v = 0; v < kEach; ++v) {
    const std::int64_t m = tile.t0 - kBefore + j + v;
    const auto g = [&](int p) { return staging.g[place_of(j + v + kLead - kBefore + p)]; };  // g[m + p]
    if (m < 0 || m >= L) even[v] = odd[v] = A(0);
    if (m == 0)
      for (int p = 0; p < 3; ++p)
        for (int k = 0; k <= 4 - 2 * p; ++k) even[v] = fma(taps.down[k], g(p), even[v]);
    if (m == L - 1)
      for (int p = 0; p < 3; ++p)
        for (int k = 7 + 2 * p; k < kTaps; ++k) odd[v] = fma(taps.down[k], g(-p), odd[v]);
  }
}

/// Adds the gradients of the inputs past the ends, which repeat the end elements, to the outputs j, ... of a tile.
template <class A>
__device__ __forceinline__ void add_ends(const Tile& tile, std::int64_t L, const BackwardStaging<A>& staging,
                                         const Taps<A>& taps, int j, A (&values)[kEach]) {
  const auto at = [&](std::int64_t s) {
    const int place = place_of(static_cast<int>(max(s / 2 - tile.t0 + kBefore, std::int64_t{0})));
    return s < 0 || s >= 2 * L ? A(0) : s % 2 == 0 ? staging.even[place] : staging.odd[place];
  };
#pragma unroll
  for (int v = 0; v < kEach; ++v) {
    const std::int64_t i = tile.t0 + j + v;
    if (i == 0)
      for (int p = 0; p < 3; ++p)
        for (int k = 7 + 2 * p; k < kTaps; ++k) values[v] = fma(taps.up[k], at(k - 7 - 2 * p), values[v]);
    if (i == L - 1)
      for (int p = 0; p < 3; ++p)
        for (int k = 0; k <= 4 - 2 * p; ++k) values[v] = fma(taps.up[k], at(2 * L - 5 + 2 * p + k), values[v]);
  }
}

/// The sums over a warp's threads, in its first.
__device__ __forceinline__ Sums sum_of_warp(Sums sums) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sums.alpha += __shfl_down_sync(0xffffffffU, sums.alpha, step);
    sums.beta += __shfl_down_sync(0xffffffffU, sums.beta, step);
  }
  return sums;
}

/// `dx` may be null, and so may `partial` (rows, shares).
template <class T>
__global__ void __launch_bounds__(kWarps * 32, sizeof(T) == 8 ? 0 : 5)
    antialiased_snake_backward_kernel(const __grid_constant__ Launch launch, const T* __restrict__ x,
                                      const T* __restrict__ gradient, T* __restrict__ dx, Sums* __restrict__ partial) {
  using A = MathOf<T>;
  using Slope = SnakeSlope<A, kIsHalf<T>>;
  __shared__ Taps<A> taps;
  __shared__ BackwardStaging<A> of_warp[kWarps];
  taps.load(launch);
  __syncthreads();
  BackwardStaging<A>& staging = of_warp[threadIdx.x / 32];
  const int j = static_cast<int>(threadIdx.x) % 32 * kEach;
  for (std::int64_t flat = blockIdx.x * kWarps + threadIdx.x / 32; flat < launch.count; flat += gridDim.x * kWarps) {
    const Share share(launch, flat);
    const Parameters<A> parameters(launch, share.channel);
    const Slope slope(parameters.alpha, parameters.beta);
    std::int64_t first = share.row * launch.L + share.begin + j;
    Sums sums;
    for (std::int64_t t0 = share.begin; t0 < share.end; t0 += kOutputs, first += kOutputs) {
      const Tile tile(t0, launch.L);
      const bool is_at_end = t0 == 0 || tile.has_end(launch.L);
      Phases<A> of;
      A value_even[kEach], value_odd[kEach];
      {
        A window[2 * kEach];
        load_window<false>(gradient + first, tile, launch, staging.g, window);
        lengthen(window, taps.down, of.even, of.odd);
        if (is_at_end) gather_ends(tile, launch.L, staging, taps, j, of.even, of.odd);
        load_window<true>(x + first, tile, launch, staging.x, window);
        lengthen(window, taps.up, value_even, value_odd);
      }
      A of_alpha(0), of_beta(0);
      const auto through = [&](const A(&values)[kEach], A(&gradients)[kEach]) {
        typename Slope::Sines sines[kEach];
        slope.sines(values, sines);
#pragma unroll
        for (int v = 0; v < kEach; ++v) {
          const bool is_own = j + v >= kBefore && j + v < kBefore + tile.n;  // the others belong to another tile
          const A own = is_own ? gradients[v] : A(0);
          of_alpha = fma(own, values[v] * sines[v].twice, of_alpha);
          of_beta = fma(own, sines[v].square, of_beta);
          gradients[v] = slope.through(gradients[v], sines[v].twice);
        }
      };
      through(value_even, of.even);
      through(value_odd, of.odd);
      sums.alpha += static_cast<double>(of_alpha);
      sums.beta += static_cast<double>(of_beta);
      if (dx != nullptr) {
        of.store(staging, j);
        __syncwarp();
        A values[kEach];
        of.shorten(staging, j, taps.up, values);
        if (is_at_end && j < tile.n) add_ends(tile, launch.L, staging, taps, j, values);
        store_outputs(dx + first, tile, launch.wide, staging.x, values);
      }
      __syncwarp();  // before the next tile overwrites it
    }
    if (partial == nullptr) continue;
    sums = sum_of_warp(sums);
    if (threadIdx.x % 32 == 0) partial[flat] = sums;
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

/// The parameters' gradients from the sums of the shares, one block per channel; the data of either may be null.
__global__ void __launch_bounds__(kSumThreads)
    add_shares_kernel(const __grid_constant__ Launch launch, const Sums* __restrict__ partial, Parameter of_alpha,
                      Parameter of_beta) {
  __shared__ Sums warps[kSumThreads / 32];
  const std::int64_t channel = blockIdx.x, batches = launch.count / (launch.C * launch.shares);
  Sums sums;
  for (std::int64_t p = threadIdx.x; p < batches * launch.shares; p += kSumThreads) {
    const std::int64_t n = p / launch.shares, share = p - n * launch.shares;
    const Sums& part = partial[(n * launch.C + channel) * launch.shares + share];
    sums.alpha += part.alpha;
    sums.beta += part.beta;
  }
  sums = sum_of_warp(sums);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sums;
  __syncthreads();
  if (threadIdx.x != 0) return;
  Sums total;
  for (const Sums& warp : warps) total.alpha += warp.alpha, total.beta += warp.beta;
  const double b = value_at<double>(launch.beta, channel);
  if (of_alpha.data != nullptr) store_parameter(of_alpha, channel, total.alpha / b);
  if (of_beta.data != nullptr) store_parameter(of_beta, channel, -total.beta / (b * b));
}

/// `pointers` are of the tensors with x's layout; null: absent.
Launch launch_of(const AntialiasedSnake& in, std::initializer_list<const void*> pointers) {
  // A share's division and parameters take as long as a fifth of a tile; several warps should get one each.
  constexpr std::int64_t kMostTiles = 8, kWarpsOfSm = 128;
  const std::int64_t rows = in.x.size(0) * in.x.size(1), L = in.x.size(2);
  const std::int64_t tiles = std::max<std::int64_t>((L + kOutputs - 1) / kOutputs, 1);
  const std::int64_t warps = kWarpsOfSm * properties(in.x.device().index).sm_count;
  const std::int64_t tiles_of_share = std::clamp<std::int64_t>(rows * tiles / warps, 1, std::min(kMostTiles, tiles));
  Launch launch{};
  launch.L = L, launch.C = in.x.size(1), launch.length = tiles_of_share * kOutputs;
  launch.shares = (L + launch.length - 1) / launch.length, launch.count = rows * launch.shares;
  launch.by_share = Divider(launch.shares), launch.by_channel = Divider(launch.C);
  launch.alpha = parameter_of(in.alpha), launch.beta = parameter_of(in.beta);
  launch.up = parameter_of(in.up), launch.down = parameter_of(in.down);
  launch.narrow = launch.count < std::int64_t{1} << 31;
  launch.wide = L * static_cast<std::int64_t>(size_of(in.x.dtype())) % 16 == 0 && L % kPack == 0 &&
                std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) { return is_aligned(pointer, 16); });
  return launch;
}

unsigned blocks_of(const Launch& launch) { return grid_for(launch.count, kWarps); }

// Calls function(element) with the floating-point type of `dtype`.
template <class Function>
void dispatch_floating(DType dtype, const Function& function) {
  dispatch_element(dtype, [&]<class T>(T element) {
    if constexpr (!std::is_same_v<T, std::int64_t>) function(element);
  });
}

}  // namespace
}  // namespace antialias

void antialiased_snake(const Tensor& out, const AntialiasedSnake& in, cudaStream_t stream) {
  using namespace antialias;
  if (out.numel() == 0) return;
  const Launch launch = launch_of(in, {in.x.raw(), out.raw()});
  dispatch_floating(out.dtype(), [&]<class T>(T) {
    antialiased_snake_kernel<<<blocks_of(launch), kWarps * 32, 0, stream>>>(launch, static_cast<const T*>(in.x.raw()),
                                                                            static_cast<T*>(out.raw()));
  });
  check_launch("antialiased_snake");
}

void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in, const Tensor& gradient,
                                cudaStream_t stream) {
  using namespace antialias;
  void* const dx = out.x.defined() ? out.x.raw() : nullptr;
  const Launch launch = launch_of(in, {in.x.raw(), gradient.raw(), dx});
  const bool has_sums = out.alpha.defined() || out.beta.defined();
  const Buffer partial(has_sums ? static_cast<std::size_t>(launch.count) * sizeof(Sums) : 0, in.x.device().index);
  Sums* const sums = has_sums ? partial.as<Sums>() : nullptr;
  if (launch.count > 0) {
    dispatch_floating(in.x.dtype(), [&]<class T>(T) {
      antialiased_snake_backward_kernel<<<blocks_of(launch), kWarps * 32, 0, stream>>>(
          launch, static_cast<const T*>(in.x.raw()), static_cast<const T*>(gradient.raw()), static_cast<T*>(dx), sums);
    });
    check_launch("antialiased_snake_backward");
  }
  if (!has_sums || launch.C == 0) return;
  const auto target = [](const Tensor& tensor) { return tensor.defined() ? parameter_of(tensor) : Parameter{}; };
  add_shares_kernel<<<static_cast<unsigned>(launch.C), kSumThreads, 0, stream>>>(launch, sums, target(out.alpha),
                                                                                 target(out.beta));
  check_launch("antialiased_snake_backward: add shares");
}

}  // namespace polyphase::cuda
