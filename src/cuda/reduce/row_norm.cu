// y = (x - mean)/sqrt(variance + epsilon)*weight + bias for rows (R, C). A block of four warps computes one row: it is read
// once from memory and up to kKept numbers a thread stay in registers, longer rows are read again. Sums in f64, so that a mean
// far from zero costs no digits; their order depends on C alone. f16 and bf16 are converted where they are read, computed in
// f32 and rounded once.

#include "cuda/reduce/row_norm.hpp"

#include <algorithm>

#include "cuda/kernel/address.hpp"
#include "cuda/kernel/elements.cuh"
#include "cuda/reduce/block_sum.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kWarps = 4, kRowThreads = 32 * kWarps;
constexpr int kKept = 8;  // numbers of a row that a thread keeps

template <class T>
struct RowNormLaunch {
  const T *x, *weight, *bias;  // the last two may be null
  T *y, *normal, *scale;       // the last two may be null
  std::int64_t rows, columns;
  double epsilon;
  bool centres;
};

template <class T>
__global__ void __launch_bounds__(kRowThreads) row_norm_kernel(const __grid_constant__ RowNormLaunch<T> launch) {
  using A = MathOf<T>;
  __shared__ double partial[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t row = blockIdx.x; row < launch.rows; row += gridDim.x) {
    const T* const x = launch.x + row * launch.columns;
    A kept[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const std::int64_t c = thread + k * kRowThreads;
      kept[k] = c < launch.columns ? convert<A>(x[c]) : A(0);
    }
    const auto for_columns = [&](const auto& use) {
#pragma unroll
      for (int k = 0; k < kKept; ++k) {
        const std::int64_t c = thread + k * kRowThreads;
        if (c < launch.columns) use(c, kept[k]);
      }
      for (std::int64_t c = thread + kKept * kRowThreads; c < launch.columns; c += kRowThreads) use(c, convert<A>(x[c]));
    };
    const double share = 1 / static_cast<double>(launch.columns);
    double mean = 0;
    if (launch.centres) {
      double sum = 0;
      for_columns([&](std::int64_t, A value) { sum += static_cast<double>(value); });
      mean = block_sum(sum, partial) * share;
    }
    double squares = 0;
    for_columns([&](std::int64_t, A value) {
      const double centred = static_cast<double>(value) - mean;
      squares = fma(centred, centred, squares);
    });
    const double variance = block_sum(squares, partial) * share;
    const A scale = static_cast<A>(1 / sqrt(variance + launch.epsilon)), near = static_cast<A>(mean);
    const A rest = static_cast<A>(mean - static_cast<double>(near));  // mean = near + rest
    for_columns([&](std::int64_t c, A value) {
      const A normal = ((value - near) - rest) * scale;
      A y = normal;
      if (launch.weight != nullptr) y *= convert<A>(launch.weight[c]);
      if (launch.bias != nullptr) y += convert<A>(launch.bias[c]);
      launch.y[row * launch.columns + c] = convert<T>(y);
      if (launch.normal != nullptr) launch.normal[row * launch.columns + c] = convert<T>(normal);
    });
    if (launch.scale != nullptr && thread == 0) launch.scale[row] = convert<T>(scale);
  }
}

template <class T>
void launch_row_norm(const NormalizedRows& out, const RowNorm& in, cudaStream_t stream) {
  const auto data = [](const Tensor& tensor) { return address_or_null<T>(tensor); };
  const RowNormLaunch<T> launch{data(in.x),      data(in.weight), data(in.bias), data(out.y), data(out.normal),
                                data(out.scale), in.x.size(0),    in.x.size(1),  in.epsilon,  in.centres};
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(launch.rows, 1 << 20));
  row_norm_kernel<T><<<grid, kRowThreads, 0, stream>>>(launch);
}

}  // namespace

void normalize_rows(const NormalizedRows& out, const RowNorm& in, cudaStream_t stream) {
  dispatch_element(in.x.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) launch_row_norm<T>(out, in, stream);
  });
  check_launch("normalize rows");
}

}  // namespace polyphase::cuda
