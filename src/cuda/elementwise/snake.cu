// y = x + sin(alpha*x)^2/beta with both parameters of x's channel. Memory bound: 8 bytes per f32 element. The general map
// kernel reads operands that are broadcast by the element; here a thread reads 16 bytes of a row and the row's parameters once.

#include "cuda/elementwise/snake.hpp"

#include <array>

#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"
#include "tensor/loop.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kPacksOfThread = 2;  // packs of a thread: enough loads outstanding

/// Rows of `row` packs; row r has the parameters of channel r mod C.
template <class T>
struct SnakeRows {
  const T *x, *alpha, *beta;
  T* y;
  std::int64_t packs, alpha_stride, beta_stride;
  Divider by_row, by_channels;
  bool narrow;
};

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) snake_rows_kernel(const __grid_constant__ SnakeRows<T> rows) {
  using A = MathOf<T>;
  using Packed = Pack<T, kPack>;
  constexpr std::int64_t kBlock = kThreads * kPacksOfThread;
  const auto* const x = reinterpret_cast<const Packed*>(rows.x);
  auto* const y = reinterpret_cast<Packed*>(rows.y);
  for (std::int64_t start = blockIdx.x * kBlock; start < rows.packs; start += gridDim.x * kBlock) {
    const std::int64_t first = start + threadIdx.x;
    Packed values[kPacksOfThread];
    A alpha[kPacksOfThread], beta[kPacksOfThread];
#pragma unroll
    for (int u = 0; u < kPacksOfThread; ++u) {
      std::int64_t at = first + u * kThreads;
      if (at >= rows.packs) break;
      values[u] = x[at];
      std::int64_t channel = rows.by_row.split(at, rows.narrow);
      rows.by_channels.split(channel, rows.narrow);
      alpha[u] = convert<A>(rows.alpha[channel * rows.alpha_stride]);
      beta[u] = convert<A>(rows.beta[channel * rows.beta_stride]);
    }
#pragma unroll
    for (int u = 0; u < kPacksOfThread; ++u) {
      const std::int64_t at = first + u * kThreads;
      if (at >= rows.packs) break;
      A numbers[kPack];
#pragma unroll
      for (int k = 0; k < kPack; ++k) numbers[k] = convert<A>(values[u].at[k]);
      SnakeFunction<A, kIsHalf<T>>(alpha[u], beta[u]).apply(numbers);
      y[at] = rounded<T>(numbers);
    }
  }
}

/// Whether operand `k` is the same along rows and in every sample.
bool is_per_channel(const Loop& loop, int k) {
  const auto& strides = loop.strides[static_cast<std::size_t>(k)];
  return loop.inner_stride(k) == 0 && (loop.rank < 3 || strides[0] == 0);
}

template <class T>
void launch(const Loop& loop, const Tensor& out, std::span<const Tensor> inputs, cudaStream_t stream) {
  const auto rank = static_cast<std::size_t>(loop.rank);
  const std::int64_t L = loop.inner_size();
  const std::int64_t C = rank > 1 ? loop.sizes[rank - 2] : 1;
  const auto stride = [&](std::size_t k) { return rank > 1 ? loop.strides[k][rank - 2] : 0; };
  const auto run = [&]<int kPack>(std::integral_constant<int, kPack>) {
    SnakeRows<T> rows{};
    rows.x = static_cast<const T*>(inputs[0].raw());
    rows.alpha = static_cast<const T*>(inputs[1].raw()), rows.alpha_stride = stride(2);
    rows.beta = static_cast<const T*>(inputs[2].raw()), rows.beta_stride = stride(3);
    rows.y = static_cast<T*>(out.raw());
    rows.packs = loop.count / kPack;
    rows.narrow = rows.packs < std::int64_t{1} << 31;
    rows.by_row = Divider(L / kPack), rows.by_channels = Divider(C);
    snake_rows_kernel<T, kPack><<<grid_for(rows.packs, kThreads * kPacksOfThread), kThreads, 0, stream>>>(rows);
  };
  constexpr int kWide = 16 / sizeof(T);
  const bool is_wide = L % kWide == 0 && is_aligned(out.raw(), 16) && is_aligned(inputs[0].raw(), 16);
  is_wide ? run(std::integral_constant<int, kWide>{}) : run(std::integral_constant<int, 1>{});
  check_launch("snake");
}

}  // namespace

bool snake_rows(const Tensor& out, std::span<const Tensor> inputs, cudaStream_t stream) {
  const Loop loop = make_loop(out, inputs);
  if (loop.rank > 3 || !loop.is_flat(0) || !loop.is_flat(1) || !is_per_channel(loop, 2) || !is_per_channel(loop, 3))
    return false;
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) launch<T>(loop, out, inputs, stream);
  });
  return true;
}

}  // namespace polyphase::cuda
