#include "cuda/linear/fixed_order.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kTile = 16;  // rows and columns of a block's tile, and elements of K in a step

/// An operand's element (batch, row, column) at from[batch*batches + row*rows + column*columns].
template <class T>
struct Matrices {
  const T* from;
  std::int64_t batches, rows, columns;
};

template <class T>
__global__ void __launch_bounds__(kTile* kTile) matmul_in_order_kernel(T* out, Matrices<T> a, Matrices<T> b, std::int64_t tiles,
                                                                       std::int64_t M, std::int64_t N, std::int64_t K) {
  using A = MathOf<T>;
  __shared__ A left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t across = (N + kTile - 1) / kTile, down = (M + kTile - 1) / kTile;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t batch = tile / (across * down), rest = tile - batch * across * down;
    const std::int64_t row = rest / across * kTile + y, column = rest % across * kTile + x;
    A sum = 0;
    for (std::int64_t begin = 0; begin < K; begin += kTile) {
      const bool in_left = row < M && begin + x < K, in_right = begin + y < K && column < N;
      left[y][x] = in_left ? convert<A>(a.from[batch * a.batches + row * a.rows + (begin + x) * a.columns]) : A(0);
      right[y][x] = in_right ? convert<A>(b.from[batch * b.batches + (begin + y) * b.rows + column * b.columns]) : A(0);
      __syncthreads();
      for (int k = 0; k < kTile && begin + k < K; ++k) sum += left[y][k] * right[k][x];
      __syncthreads();
    }
    if (row < M && column < N) out[(batch * M + row) * N + column] = convert<T>(sum);
  }
}

}  // namespace

void matmul_in_order(const Tensor& out, const Tensor& a, const Tensor& b, cudaStream_t stream) {
  const std::int64_t B = out.size(0), M = out.size(1), N = out.size(2), K = a.size(2);
  if (out.numel() == 0) return;
  const std::int64_t tiles = B * ((M + kTile - 1) / kTile) * ((N + kTile - 1) / kTile);
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(tiles, 1 << 20));
  const auto run = [&]<class T>(T) {
    const auto matrices = [](const Tensor& tensor) {
      return Matrices<T>{static_cast<const T*>(tensor.raw()), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
    };
    matmul_in_order_kernel<T>
        <<<grid, kTile * kTile, 0, stream>>>(static_cast<T*>(out.raw()), matrices(a), matrices(b), tiles, M, N, K);
  };
  dispatch_element(out.dtype(), run);
  check_launch("matmul in order");
}

}  // namespace polyphase::cuda
