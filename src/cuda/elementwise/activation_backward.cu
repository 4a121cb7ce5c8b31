// in = derivative(result) * gradient and sums[c] = sum of in over samples and positions. Memory bound: 12 bytes per f32
// element.
//
// A block processes a piece of one channel: 16 bytes per load, four f64 accumulators per thread, a tree over the threads. Up to
// eight pieces of a channel are a cluster; its first block adds the others' sums from their shared memory in order. On GPUs
// without clusters, and for few long channels, a second launch adds them. Short rows that do not begin at multiples of 16 bytes
// are processed by neighbouring channels, whose rows together do: a block stages what it has computed and adds the rows in
// shared memory. The pieces and their order depend on the shape alone, not on the activation: the same bits as the derivative
// by map(), summed by a call without an activation.

#include "cuda/elementwise/activation_backward.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/fast_divide.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kBackwardThreads = 512;
constexpr std::int64_t kPieceElements = 4096;
constexpr std::int64_t kLongPieceElements = 65536;
constexpr int kMostPieces = 256;
constexpr int kUnroll = 4;  // outstanding packs of each array per thread

struct BackwardLaunch {
  std::int64_t C, row, packs, piece_packs;  // packs: of a row, of a channel, of a piece
  Divider by_row;
  int pieces;
  bool aligned, narrow;
  Activation activation;
  double slope;
};

/// A pack in registers: separate 16-bit elements would take one register each.
template <class T, int kPack>
struct Held {
  static constexpr int kOfWord = sizeof(T) == 2 && kPack > 1 ? 2 : 1;
  using Word = std::conditional_t<kOfWord == 2, std::uint32_t, T>;
  Word words[kPack / kOfWord];

  __device__ __forceinline__ void load(const T* from, bool aligned) {
    if (aligned) {
      const auto whole = *reinterpret_cast<const Pack<Word, kPack / kOfWord>*>(from);
#pragma unroll
      for (int i = 0; i < kPack / kOfWord; ++i) words[i] = whole.at[i];
    } else if constexpr (kOfWord == 2) {
      const auto* const halves = reinterpret_cast<const std::uint16_t*>(from);
#pragma unroll
      for (int i = 0; i < kPack / 2; ++i) words[i] = halves[2 * i] | static_cast<std::uint32_t>(halves[2 * i + 1]) << 16;
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) words[i] = from[i];
    }
  }
  [[nodiscard]] __device__ __forceinline__ Pack<T, kPack> pack() const {
    Pack<Word, kPack / kOfWord> whole;
#pragma unroll
    for (int i = 0; i < kPack / kOfWord; ++i) whole.at[i] = words[i];
    return *reinterpret_cast<const Pack<T, kPack>*>(&whole);
  }
};

template <class T, int kPack>
__device__ __forceinline__ void store(T* to, bool aligned, const Pack<T, kPack>& pack) {
  if (aligned) {
    *reinterpret_cast<Pack<T, kPack>*>(to) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = pack.at[i];
}

/// The sum over the block's threads, in thread 0.
__device__ __forceinline__ double sum_of_threads(double sum) {
  constexpr int kWarps = kBackwardThreads / 32;
  __shared__ double warps[kWarps];  // (warps)
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step);
  __syncthreads();  // the previous channel's sums have been read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += warps[warp];
  }
  return total;
}

/// The sum over the blocks of a cluster in order of rank, in thread 0 of the first.
__device__ __forceinline__ double sum_of_cluster(double total, int blocks) {
  if (blocks == 1) return total;
  __shared__ double own;
  if (threadIdx.x == 0) own = total;
  synchronize_cluster();
  if (threadIdx.x == 0 && blockIdx.x == 0) total = sum_of_blocks<double>(&own, blocks);
  synchronize_cluster();  // no block leaves or writes again before it is read
  return total;
}

/// gradient = derivative * gradient, with the formulas of elementwise_functions.cuh.
template <class T, int kPack>
__device__ __forceinline__ void apply_derivative(Activation activation, MathOf<T> slope, const Pack<T, kPack>& result,
                                                 Pack<T, kPack>& gradient) {
  using A = MathOf<T>;
  const A zero(0), one(1);
  const auto each = [&](const auto& function) {
#pragma unroll
    for (int k = 0; k < kPack; ++k) gradient.at[k] = convert<T>(function(convert<A>(result.at[k]), convert<A>(gradient.at[k])));
  };
  switch (activation) {
    case Activation::relu:
      return each([=](A a, A g) { return a <= zero ? zero : g; });
    case Activation::leaky_relu:
      return each([=](A a, A g) { return a > zero ? g : slope * g; });
    default:
      return each([=](A a, A g) { return g * (one - a * a); });  // tanh
  }
}

/// One piece of a channel: writes its part of `in` and returns the thread's part of its sum.
template <class T, int kPack>
__device__ __forceinline__ double walk_piece(const BackwardLaunch& launch, std::int64_t channel, const T* __restrict__ result,
                                             const T* __restrict__ gradient, T* __restrict__ in) {
  using A = MathOf<T>;
  double sums[4] = {};
  const std::int64_t begin = blockIdx.x * launch.piece_packs, end = min(begin + launch.piece_packs, launch.packs);
  for (std::int64_t first = begin + threadIdx.x; first < end; first += kUnroll * kBackwardThreads) {
    Held<T, kPack> gradients[kUnroll], results[kUnroll];
    const auto place = [&](int u) {
      std::int64_t position = first + u * kBackwardThreads;
      const std::int64_t n = launch.by_row.split(position, launch.narrow);
      return ((n * launch.C + channel) * launch.row + position) * kPack;
    };
    constexpr bool kKeepsPlaces = kPack < 8;  // else there are no registers for them
    std::int64_t at[kKeepsPlaces ? kUnroll : 1];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * kBackwardThreads >= end) break;
      std::int64_t& own = at[kKeepsPlaces ? u : 0];
      own = place(u);
      gradients[u].load(gradient + own, launch.aligned);
      if (launch.activation != Activation::none) results[u].load(result + own, launch.aligned);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * kBackwardThreads >= end) break;
      Pack<T, kPack> g = gradients[u].pack();
      if (launch.activation != Activation::none) {
        apply_derivative(launch.activation, static_cast<A>(launch.slope), results[u].pack(), g);
        store<T, kPack>(in + (kKeepsPlaces ? at[kKeepsPlaces ? u : 0] : place(u)), launch.aligned, g);
      }
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[k % 4] += static_cast<double>(convert<A>(g.at[k]));
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Blocks (piece, channel). Without `partial` the pieces of a channel form one cluster.
template <class T, int kPack>
__global__ void __launch_bounds__(kBackwardThreads, 2)
    activation_backward_kernel(const __grid_constant__ BackwardLaunch launch, const T* __restrict__ result,
                               const T* __restrict__ gradient, T* __restrict__ in, T* __restrict__ sums,
                               double* __restrict__ partial) {
  for (std::int64_t channel = blockIdx.y; channel < launch.C; channel += gridDim.y) {
    double sum = walk_piece<T, kPack>(launch, channel, result, gradient, in);
    if (sums == nullptr) continue;
    sum = sum_of_threads(sum);
    if (partial != nullptr) {
      if (threadIdx.x == 0) partial[channel * launch.pieces + blockIdx.x] = sum;
      continue;
    }
    sum = sum_of_cluster(sum, launch.pieces);
    if (threadIdx.x == 0 && blockIdx.x == 0) sums[channel] = convert<T>(sum);
  }
}

constexpr int kRowsThreads = 256;
constexpr int kTileElements = 4096;

/// Channels of a block.
struct RowsLaunch {
  std::int64_t N, C, per_piece;     // samples of a piece
  int L, channels, packs, at_once;  // packs of a sample; samples of a tile
  FastDivide by_packs;
  int pieces;
  bool aligned;
  Activation activation;
  float slope;
};

/// Blocks (piece, channels), a cluster of pieces as above. Type T of 4 or 2 bytes.
template <class T>
__global__ void __launch_bounds__(kRowsThreads)
    activation_backward_rows_kernel(const __grid_constant__ RowsLaunch launch, const T* __restrict__ result,
                                    const T* __restrict__ gradient, T* __restrict__ in, T* __restrict__ sums,
                                    double* __restrict__ partial) {
  constexpr int kPack = 16 / sizeof(T);
  __shared__ __align__(16) float tile[kTileElements];  // (at_once, channels, L)
  __shared__ double own[kRowsThreads / 8];             // (channels)
  const int thread = static_cast<int>(threadIdx.x), lanes = kRowsThreads / launch.channels;
  const std::int64_t first = blockIdx.y * static_cast<std::int64_t>(launch.channels);
  const std::int64_t begin = blockIdx.x * launch.per_piece, end = min(begin + launch.per_piece, launch.N);
  const int row = thread / lanes, lane = thread % lanes;
  double sum = 0;
  for (std::int64_t n = begin; n < end; n += launch.at_once) {
    const int count = static_cast<int>(min(static_cast<std::int64_t>(launch.at_once), end - n));
#pragma unroll 2
    for (int i = thread; i < count * launch.packs; i += kRowsThreads) {
      const int sample = static_cast<int>(launch.by_packs.divide(static_cast<std::uint32_t>(i)));
      const int element = (i - sample * launch.packs) * kPack;
      const std::int64_t at = ((n + sample) * launch.C + first) * launch.L + element;
      Held<T, kPack> held;
      held.load(gradient + at, launch.aligned);
      Pack<T, kPack> g = held.pack();
      if (launch.activation != Activation::none) {
        held.load(result + at, launch.aligned);
        apply_derivative(launch.activation, launch.slope, held.pack(), g);
        store<T, kPack>(in + at, launch.aligned, g);
      }
      auto* const to = reinterpret_cast<Pack<float, 4>*>(tile + sample * launch.packs * kPack + element);
#pragma unroll
      for (int k = 0; k < kPack / 4; ++k)
        to[k] = {convert<float>(g.at[4 * k]), convert<float>(g.at[4 * k + 1]), convert<float>(g.at[4 * k + 2]),
                 convert<float>(g.at[4 * k + 3])};
    }
    if (sums == nullptr) continue;
    __syncthreads();
    for (int sample = 0; sample < count; ++sample)
      for (int j = lane; j < launch.L; j += lanes)
        sum += static_cast<double>(tile[(sample * launch.channels + row) * launch.L + j]);
    __syncthreads();
  }
  if (sums == nullptr) return;
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffU, sum, step, lanes);
  if (lane == 0) own[row] = sum;
  if (partial != nullptr) {
    if (lane == 0) partial[(first + row) * launch.pieces + blockIdx.x] = sum;
    return;
  }
  if (launch.pieces > 1) synchronize_cluster();
  if (blockIdx.x == 0 && lane == 0)
    sums[first + row] = convert<T>(launch.pieces > 1 ? sum_of_blocks<double>(&own[row], launch.pieces) : sum);
  if (launch.pieces > 1) synchronize_cluster();  // no block leaves before it is read
}

/// Channels of a block for rows of L elements in packs of `pack`; 0 if the kernel above is not for them: clusters of so few
/// groups would leave most of a GPU idle.
int channels_of_block(std::int64_t C, std::int64_t L, int pack) {
  constexpr std::int64_t kFewestGroups = 32;
  if (L % pack == 0 || C / 8 > 65535) return 0;
  for (const int channels : {32, 16, 8})
    if (C % channels == 0 && C / channels >= kFewestGroups && channels * L <= kTileElements) return channels;
  return 0;
}

/// sums[c] = the channel's pieces added in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_pieces_kernel(const double* __restrict__ partial, std::int64_t channels, int pieces, T* __restrict__ sums) {
  for (std::int64_t channel = thread_position(); channel < channels; channel += thread_count()) {
    double sum = 0;
    for (int piece = 0; piece < pieces; ++piece) sum += partial[channel * pieces + piece];
    sums[channel] = convert<T>(sum);
  }
}

/// Depends on the shape alone.
int count_pieces(std::int64_t channels, std::int64_t elements) {
  const std::int64_t few = std::clamp<std::int64_t>((elements + kPieceElements - 1) / kPieceElements, 1, kMostCluster);
  const std::int64_t many = (elements + kLongPieceElements - 1) / kLongPieceElements;
  const bool is_long = many > kMostCluster && channels * few < kMostPieces;
  return static_cast<int>(is_long ? std::min<std::int64_t>(many, kMostPieces) : few);
}

/// `kernel` for `step`, with blocks (pieces, groups of channels) of `threads`.
template <class T, class Launch, class Kernel>
void launch_backward(const Kernel& kernel, int threads, std::int64_t groups, const Launch& step, const T* result,
                     const T* gradient, T* in, T* sums, int device, cudaStream_t stream) {
  const bool clusters = sums != nullptr && step.pieces <= most_cluster(device);
  const bool second = sums != nullptr && step.pieces > 1 && !clusters;
  const Buffer partial(second ? static_cast<std::size_t>(step.C * step.pieces) * sizeof(double) : 0, device);
  double* const between = second ? partial.as<double>() : nullptr;
  const auto pieces = static_cast<unsigned>(step.pieces);
  const dim3 grid(pieces, static_cast<unsigned>(std::min<std::int64_t>(groups, 65535)));
  launch_clusters(kernel, grid, static_cast<unsigned>(threads), 0, stream, clusters ? pieces : 1, step, result, gradient, in,
                  sums, between);
  check_launch("activation_backward");
  if (!second) return;
  add_pieces_kernel<<<grid_for(step.C), kThreads, 0, stream>>>(between, step.C, step.pieces, sums);
  check_launch("activation_backward: add pieces");
}

}  // namespace

void activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient, const Tensor& in,
                         const Tensor& sums, cudaStream_t stream) {
  const bool active = epilogue.activation != Activation::none;
  const std::int64_t N = gradient.size(0), C = gradient.size(1), L = gradient.size(2);
  dispatch_element(gradient.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      const auto* y = active ? static_cast<const T*>(result.raw()) : nullptr;
      const auto* g = static_cast<const T*>(gradient.raw());
      auto* const out = active ? static_cast<T*>(in.raw()) : nullptr;
      auto* const totals = sums.defined() ? static_cast<T*>(sums.raw()) : nullptr;
      const auto run = [&]<int kPack>(std::integral_constant<int, kPack>) {
        BackwardLaunch launch{};
        launch.C = C, launch.row = L / kPack, launch.packs = N * launch.row;
        launch.pieces = count_pieces(C, N * L);
        launch.piece_packs = (launch.packs + launch.pieces - 1) / launch.pieces;
        launch.by_row = Divider(launch.row);
        launch.aligned = kPack == 1 || (is_aligned(y, 16) && is_aligned(g, 16) && is_aligned(out, 16));
        launch.narrow = launch.packs < std::int64_t{1} << 31;
        launch.activation = epilogue.activation, launch.slope = epilogue.slope;
        launch_backward(activation_backward_kernel<T, kPack>, kBackwardThreads, C, launch, y, g, out, totals,
                        gradient.device().index, stream);
      };
      constexpr int kWide = 16 / sizeof(T);
      if constexpr (!std::is_same_v<T, double>) {
        const int channels = channels_of_block(C, L, kWide);
        if (channels > 0) {
          RowsLaunch launch{};
          launch.N = N, launch.C = C, launch.L = static_cast<int>(L), launch.channels = channels;
          launch.packs = channels * launch.L / kWide, launch.at_once = kTileElements / (channels * launch.L);
          launch.by_packs = FastDivide(static_cast<std::uint32_t>(launch.packs));
          launch.pieces = static_cast<int>(std::clamp<std::int64_t>(N / launch.at_once, 1, kMostCluster));
          launch.per_piece = (N + launch.pieces - 1) / launch.pieces;
          launch.aligned = is_aligned(y, 16) && is_aligned(g, 16) && is_aligned(out, 16);
          launch.activation = epilogue.activation, launch.slope = static_cast<float>(epilogue.slope);
          return launch_backward(activation_backward_rows_kernel<T>, kRowsThreads, C / channels, launch, y, g, out, totals,
                                 gradient.device().index, stream);
        }
      }
      L % kWide == 0 ? run(std::integral_constant<int, kWide>{}) : run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace polyphase::cuda
