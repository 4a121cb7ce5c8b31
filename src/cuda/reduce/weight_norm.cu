// w = v*(g/||v||) for rows, and its gradients, w and its gradient in T or in 16 bits (W). A block computes one row, which it
// reads twice: the second time it comes from the cache. Sums in f64. Rounded to T after every step and not contracted to fused
// multiply-adds, as separate operations are.
//
// A network has a hundred such weights of a few hundred kilobytes: launches take longer than the memory, so all weights of one
// dtype share one.

#include "cuda/reduce/weight_norm.hpp"

#include <map>
#include <utility>
#include <vector>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/table.cuh"
#include "cuda/reduce/block_sum.cuh"
#include "cuda/reduce/weight_types.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kNormWarps = 8, kNormThreads = 32 * kNormWarps;

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

/// A weight of `count` rows.
struct WeightRow {
  const void *v, *g;
  void *w, *norms;
  std::int64_t count, columns;
};
using WeightTable = Table<WeightRow, NoStep>;

template <class T, class W>
__global__ void __launch_bounds__(kNormThreads) weight_norm_kernel(const __grid_constant__ WeightTable table) {
  __shared__ double partial[kNormWarps];
  const int of = row_of_block(table);
  const WeightRow& weight = table.row[of];
  const std::int64_t row = blockIdx.x - table.first_block[of], columns = weight.columns;
  const T* const from = static_cast<const T*>(weight.v) + row * columns;
  W* const to = static_cast<W*>(weight.w) + row * columns;
  double squares = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads)
    squares = fma(static_cast<double>(from[c]), static_cast<double>(from[c]), squares);
  const T norm = sqrt(static_cast<T>(block_sum(squares, partial))), scale = static_cast<const T*>(weight.g)[row] / norm;
  for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads) to[c] = convert<W>(times(from[c], scale));
  if (threadIdx.x == 0) static_cast<T*>(weight.norms)[row] = norm;
}

/// Its gradients.
struct WeightGradientRow {
  const void *dw, *v, *g, *norms;
  void *dv, *dg;
  std::int64_t count, columns;
};
using WeightGradientTable = Table<WeightGradientRow, NoStep>;

template <class T, class W>
__global__ void __launch_bounds__(kNormThreads) weight_norm_backward_kernel(const __grid_constant__ WeightGradientTable table) {
  __shared__ double partial[kNormWarps];
  const int of = row_of_block(table);
  const WeightGradientRow& weight = table.row[of];
  const std::int64_t row = blockIdx.x - table.first_block[of], columns = weight.columns;
  const W* const in = static_cast<const W*>(weight.dw) + row * columns;
  const T* const direction = static_cast<const T*>(weight.v) + row * columns;
  T* const dv = static_cast<T*>(weight.dv) + row * columns;
  double products = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads)
    products += static_cast<double>(times(convert<T>(in[c]), direction[c]));
  const T norm = static_cast<const T*>(weight.norms)[row], of_g = static_cast<T>(block_sum(products, partial)) / norm;
  const T scale = static_cast<const T*>(weight.g)[row] / norm, along = times(scale, of_g / norm);
  for (std::int64_t c = threadIdx.x; c < columns; c += kNormThreads)
    dv[c] = times(convert<T>(in[c]), scale) - times(direction[c], along);
  if (threadIdx.x == 0) static_cast<T*>(weight.dg)[row] = of_g;
}

/// Calls launch(table, blocks, T{}, W{}) for the rows, by their dtypes (of v; of w or its gradient).
template <class Row, class Launch>
void for_each_dtype(const std::map<std::pair<DType, DType>, std::vector<Row>>& rows, const Launch& launch) {
  for (const auto& [dtypes, of_one] : rows)
    with_weight_types(dtypes.first, dtypes.second, [&]<class T, class W>(T t, W w) {
      const auto run = [&](const Table<Row, NoStep>& table, std::uint32_t blocks) { launch(table, blocks, t, w); };
      for_each_table(std::span<const Row>(of_one), NoStep{}, run, /*chunk=*/1);
    });
}

}  // namespace

void weight_norm(std::span<const NormalizedWeight> weights, cudaStream_t stream) {
  std::map<std::pair<DType, DType>, std::vector<WeightRow>> rows;
  for (const auto& [w, norms, v, g] : weights)
    rows[{v.dtype(), w.dtype()}].push_back({v.raw(), g.raw(), w.raw(), norms.raw(), v.size(0), v.numel() / v.size(0)});
  for_each_dtype(rows, [&]<class T, class W>(const WeightTable& table, std::uint32_t blocks, T, W) {
    weight_norm_kernel<T, W><<<blocks, kNormThreads, 0, stream>>>(table);
    check_launch("weight_norm");
  });
}

void weight_norm_backward(std::span<const NormalizedWeightGradient> gradients, cudaStream_t stream) {
  std::map<std::pair<DType, DType>, std::vector<WeightGradientRow>> rows;
  for (const auto& [dv, dg, dw, v, g, norms] : gradients)
    rows[{v.dtype(), dw.dtype()}].push_back(
        {dw.raw(), v.raw(), g.raw(), norms.raw(), dv.raw(), dg.raw(), v.size(0), v.numel() / v.size(0)});
  for_each_dtype(rows, [&]<class T, class W>(const WeightGradientTable& table, std::uint32_t blocks, T, W) {
    weight_norm_backward_kernel<T, W><<<blocks, kNormThreads, 0, stream>>>(table);
    check_launch("weight_norm_backward");
  });
}

}  // namespace polyphase::cuda
