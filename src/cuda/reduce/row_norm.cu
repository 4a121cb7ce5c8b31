// y = (x - mean)/sqrt(variance + epsilon)*weight + bias for rows (N, C). A block of four warps computes one row: it is read
// once from memory and up to kKept numbers a thread stay in registers, longer rows are read again. Sums in f64, so that a mean
// far from zero costs no digits; their order depends on C alone. f16 and bf16 are converted where they are read, computed in
// f32 and rounded once.

#include <algorithm>

#include "cuda/reduce/block_sum.cuh"
#include "cuda/reduce/channel_norm.cuh"
#include "cuda/reduce/channel_norm.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kWarps = 4, kRowThreads = 32 * kWarps;
constexpr int kKept = 8;  // numbers of a row that a thread keeps

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    row_norm_kernel(const __grid_constant__ NormCall<T> call, std::int64_t rows, std::int64_t columns) {
  using A = MathOf<T>;
  __shared__ double partial[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x = call.x + row * columns;
    A kept[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const std::int64_t c = thread + k * kRowThreads;
      kept[k] = c < columns ? convert<A>(x[c]) : A(0);
    }
    const auto for_columns = [&](const auto& use) {
#pragma unroll
      for (int k = 0; k < kKept; ++k) {
        const std::int64_t c = thread + k * kRowThreads;
        if (c < columns) use(c, kept[k]);
      }
      for (std::int64_t c = thread + kKept * kRowThreads; c < columns; c += kRowThreads) use(c, convert<A>(x[c]));
    };
    const double share = 1 / static_cast<double>(columns);
    double mean = 0;
    if (call.centres) {
      double sum = 0;
      for_columns([&](std::int64_t, A value) { sum += static_cast<double>(value); });
      mean = block_sum(sum, partial) * share;
    }
    double squares = 0;
    for_columns([&](std::int64_t, A value) {
      const double centred = static_cast<double>(value) - mean;
      squares = fma(centred, centred, squares);
    });
    const auto of = call.position(mean, block_sum(squares, partial) * share);
    for_columns([&](std::int64_t c, A value) { call.store(of, row * columns + c, c, value); });
    if (call.scale != nullptr && thread == 0) call.scale[row] = convert<T>(of.factor);
  }
}

}  // namespace

void normalize_rows(const NormOutputs& out, const NormInputs& in, cudaStream_t stream) {
  const std::int64_t rows = in.x.size(0), columns = in.x.size(1);
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(rows, 1 << 20));
  dispatch_element(in.x.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>)
      row_norm_kernel<T><<<grid, kRowThreads, 0, stream>>>(NormCall<T>(out, in), rows, columns);
  });
  check_launch("normalize rows");
}

}  // namespace polyphase::cuda
