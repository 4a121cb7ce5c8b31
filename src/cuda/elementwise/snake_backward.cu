// With u = alpha*x, g the result's gradient and both parameters of x's channel:
//   dx = g*(1 + alpha*sin(2u)/beta)   dalpha = sum of g*x*sin(2u)/beta   dbeta = -sum of g*sin(u)^2/beta^2
// over samples and positions. Memory bound: 12 bytes per f32 element, 16 with a sum, and the two sines
// of snake_function.cuh for all three.
//
// A block processes a piece of one channel, 16 bytes per load, and adds the sums of a load in f64: one sum per thread and
// parameter, a tree over the threads. A second launch adds the pieces of each channel in order. Pieces depend on the shape
// alone.

#include "cuda/elementwise/snake_backward.hpp"

#include <algorithm>

#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/address.hpp"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kSnakeThreads = 256;
constexpr std::int64_t kSnakePieceElements = 8192;
constexpr std::int64_t kMostSnakePieces = 256;

struct SnakeLaunch {
  std::int64_t C, row, packs, piece_packs;  // packs: of a row, of a channel, of a piece
  Divider by_row;
  int pieces;
  bool narrow;
};

/// The sums over the block's threads, in thread 0.
struct SnakeSums {
  double alpha = 0, beta = 0;
};
__device__ __forceinline__ SnakeSums sum_of_threads(SnakeSums sums) {
  constexpr int kWarps = kSnakeThreads / 32;
  __shared__ SnakeSums warps[kWarps];  // (warps)
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sums.alpha += __shfl_down_sync(0xffffffffU, sums.alpha, step);
    sums.beta += __shfl_down_sync(0xffffffffU, sums.beta, step);
  }
  __syncthreads();  // the previous channel's sums have been read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sums;
  __syncthreads();
  SnakeSums total;
  if (threadIdx.x == 0) {
    for (const SnakeSums& warp : warps) total.alpha += warp.alpha, total.beta += warp.beta;
  }
  return total;
}

/// A sum of rounded terms: otherwise the compiler would fuse a product and its sum.
__device__ __forceinline__ float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double rounded_sum(double a, double b) { return __dadd_rn(a, b); }

/// Blocks (piece, channel). `in` may be null, and so may `added` and `partial` (C, pieces).
template <class T, int kPack>
__global__ void __launch_bounds__(kSnakeThreads, 4)
    snake_backward_kernel(const __grid_constant__ SnakeLaunch launch, const T* __restrict__ x, const T* __restrict__ alpha,
                          const T* __restrict__ beta, const T* __restrict__ gradient, const T* __restrict__ added,
                          T* __restrict__ in, SnakeSums* __restrict__ partial) {
  using A = MathOf<T>;
  using Packed = Pack<T, kPack>;
  for (std::int64_t channel = blockIdx.y; channel < launch.C; channel += gridDim.y) {
    const SnakeSlope<A, kIsHalf<T>> slope(convert<A>(alpha[channel]), convert<A>(beta[channel]));
    SnakeSums sums;
    const std::int64_t begin = blockIdx.x * launch.piece_packs, end = min(begin + launch.piece_packs, launch.packs);
    for (std::int64_t first = begin + threadIdx.x; first < end; first += kSnakeThreads) {
      std::int64_t position = first;
      const std::int64_t n = launch.by_row.split(position, launch.narrow);
      const std::int64_t at = ((n * launch.C + channel) * launch.row + position) * kPack;
      Packed values = *reinterpret_cast<const Packed*>(x + at), g = *reinterpret_cast<const Packed*>(gradient + at);
      const Packed other = added != nullptr ? *reinterpret_cast<const Packed*>(added + at) : values;
      A numbers[kPack];
#pragma unroll
      for (int k = 0; k < kPack; ++k) numbers[k] = convert<A>(values.at[k]);
      typename SnakeSlope<A, kIsHalf<T>>::Sines sines[kPack];
      slope.sines(numbers, sines);
      A of_alpha(0), of_beta(0);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const A incoming = convert<A>(g.at[k]);
        of_alpha = fma(incoming, numbers[k] * sines[k].twice, of_alpha);
        of_beta = fma(incoming, sines[k].square, of_beta);
        values.at[k] = convert<T>(slope.through(incoming, sines[k].twice));
        if (added != nullptr) values.at[k] = convert<T>(rounded_sum(convert<A>(other.at[k]), convert<A>(values.at[k])));
      }
      sums.alpha += static_cast<double>(of_alpha);
      sums.beta += static_cast<double>(of_beta);
      if (in != nullptr) *reinterpret_cast<Packed*>(in + at) = values;
    }
    if (partial == nullptr) continue;
    sums = sum_of_threads(sums);
    if (threadIdx.x == 0) partial[channel * launch.pieces + blockIdx.x] = sums;
  }
}

/// The parameters' gradients from the pieces of each channel, added in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_snake_pieces_kernel(const SnakeSums* __restrict__ partial, std::int64_t channels, int pieces,
                            const T* __restrict__ beta, T* __restrict__ of_alpha, T* __restrict__ of_beta) {
  for (std::int64_t channel = thread_position(); channel < channels; channel += thread_count()) {
    SnakeSums sums;
    for (int piece = 0; piece < pieces; ++piece) {
      sums.alpha += partial[channel * pieces + piece].alpha;
      sums.beta += partial[channel * pieces + piece].beta;
    }
    const double b = static_cast<double>(convert<MathOf<T>>(beta[channel]));
    if (of_alpha != nullptr) of_alpha[channel] = convert<T>(sums.alpha / b);
    if (of_beta != nullptr) of_beta[channel] = convert<T>(-sums.beta / (b * b));
  }
}

template <class T>
void snake_backward_as(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                       const SnakeGradients& out, cudaStream_t stream) {
  const std::int64_t N = x.size(0), C = x.size(1), L = x.size(2);
  const auto* values = static_cast<const T*>(x.raw());
  const auto* g = static_cast<const T*>(gradient.raw());
  T* const in = address_or_null<T>(out.x);
  const T* const added = address_or_null<T>(out.added);
  const bool sums = out.alpha.defined() || out.beta.defined();
  const auto run = [&]<int kPack>(std::integral_constant<int, kPack>) {
    SnakeLaunch launch{};
    launch.C = C, launch.row = L / kPack, launch.packs = N * launch.row;
    launch.pieces = static_cast<int>(
        std::clamp<std::int64_t>((N * L + kSnakePieceElements - 1) / kSnakePieceElements, 1, kMostSnakePieces));
    launch.piece_packs = (launch.packs + launch.pieces - 1) / launch.pieces;
    launch.by_row = Divider(launch.row);
    launch.narrow = launch.packs < std::int64_t{1} << 31;
    const auto count = static_cast<std::size_t>(C * launch.pieces);
    const Buffer partial(sums ? count * sizeof(SnakeSums) : 0, x.device().index);
    auto* const pieces = sums ? partial.as<SnakeSums>() : nullptr;
    const dim3 grid(static_cast<unsigned>(launch.pieces), static_cast<unsigned>(std::min<std::int64_t>(C, 65535)));
    snake_backward_kernel<T, kPack><<<grid, kSnakeThreads, 0, stream>>>(
        launch, values, static_cast<const T*>(alpha.raw()), static_cast<const T*>(beta.raw()), g, added, in, pieces);
    check_launch("snake_backward");
    if (!sums) return;
    add_snake_pieces_kernel<<<grid_for(C), kThreads, 0, stream>>>(pieces, C, launch.pieces, static_cast<const T*>(beta.raw()),
                                                                  address_or_null<T>(out.alpha), address_or_null<T>(out.beta));
    check_launch("snake_backward: add pieces");
  };
  constexpr int kWide = 16 / sizeof(T);
  const bool is_wide =
      L % kWide == 0 && is_aligned(values, 16) && is_aligned(g, 16) && is_aligned(added, 16) && is_aligned(in, 16);
  is_wide ? run(std::integral_constant<int, kWide>{}) : run(std::integral_constant<int, 1>{});
}

}  // namespace

void snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient, const SnakeGradients& out,
                    cudaStream_t stream) {
  dispatch_element(x.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) snake_backward_as<T>(x, alpha, beta, gradient, out, stream);
  });
}

}  // namespace polyphase::cuda
