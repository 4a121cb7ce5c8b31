// Spectral norm of matrices W (rows, columns) with their estimates left and right of the first singular vectors:
//
//   columns   sums[i][c] = sum over rows r of the i-th 32 rows of W[r][c]*left[r]
//   add       right[c] = sum over i of sums[i][c]; squares of each 256 columns, for ||right||
//   rows      left[r] = sum over c of W[r][c]*right[c]/||right||
//   estimate  ||left||, sigma = <left/||left||, left>
//   divide    w = W/sigma
//
// and of the gradients: the sums of dw*W of each row, their sum, and dW = (dw - <dw, W>/sigma * left right^T)/sigma. All
// weights share each launch: a layer has a dozen such steps, and most take less time than a launch. Sums in f64, in an order
// that the shapes fix. Memory bound: W is read three times, mostly from the L2 cache.

#include "cuda/reduce/spectral_norm.hpp"

#include <map>
#include <utility>
#include <vector>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/table.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/reduce/block_sum.cuh"
#include "cuda/reduce/weight_types.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kSpectralWarps = 8, kSpectralThreads = 32 * kSpectralWarps;
constexpr std::int64_t kRowsAtOnce = 32;  // of a column sum
constexpr double kLeastNorm = 1e-12;      // PyTorch's normalize()

/// A weight. Vectors of doubles are scratch.
struct SpectralRow {
  const void* matrix;
  void *left_start, *right_start;  // read; written if `iterates`
  void *left, *right, *w, *sigma;
  double* sums;        // (pieces, columns)
  double* raw_right;   // (columns)
  double* squares;     // (tiles of 256 columns)
  double* raw_left;    // (rows)
  std::int64_t count;  // blocks of the launch
  std::int64_t rows, columns;
  bool iterates;
  [[nodiscard]] __host__ __device__ std::int64_t pieces() const { return (rows + kRowsAtOnce - 1) / kRowsAtOnce; }
  [[nodiscard]] __host__ __device__ std::int64_t tiles() const { return (columns + kSpectralThreads - 1) / kSpectralThreads; }
};
using SpectralTable = Table<SpectralRow, NoStep>;

/// Blocks (piece, tile) of a weight.
template <class T>
__global__ void __launch_bounds__(kSpectralThreads) spectral_columns_kernel(const __grid_constant__ SpectralTable table) {
  const int of = row_of_block(table);
  const SpectralRow& weight = table.row[of];
  const std::int64_t block = blockIdx.x - table.first_block[of], tiles = weight.tiles(), piece = block / tiles;
  const std::int64_t column = block % tiles * kSpectralThreads + threadIdx.x;
  if (column >= weight.columns) return;
  const std::int64_t begin = piece * kRowsAtOnce, end = min(begin + kRowsAtOnce, weight.rows);
  const T* const matrix = static_cast<const T*>(weight.matrix) + column;
  const T* const left = static_cast<const T*>(weight.left_start);
  double sum = 0;
#pragma unroll 8
  for (std::int64_t r = begin; r < end; ++r)
    sum = fma(static_cast<double>(matrix[r * weight.columns]), static_cast<double>(left[r]), sum);
  weight.sums[piece * weight.columns + column] = sum;
}

/// Blocks (tile).
__global__ void __launch_bounds__(kSpectralThreads) spectral_add_kernel(const __grid_constant__ SpectralTable table) {
  __shared__ double partial[kSpectralWarps];
  const int of = row_of_block(table);
  const SpectralRow& weight = table.row[of];
  const std::int64_t tile = blockIdx.x - table.first_block[of], column = tile * kSpectralThreads + threadIdx.x;
  double sum = 0;
  if (column < weight.columns) {
    const std::int64_t pieces = weight.pieces();
#pragma unroll 8
    for (std::int64_t piece = 0; piece < pieces; ++piece) sum += weight.sums[piece * weight.columns + column];
    weight.raw_right[column] = sum;
  }
  const double squares = block_sum(sum * sum, partial);
  if (threadIdx.x == 0) weight.squares[tile] = squares;
}

/// Blocks (row); the first one of a weight writes the unit vector, too.
template <class T>
__global__ void __launch_bounds__(kSpectralThreads) spectral_rows_kernel(const __grid_constant__ SpectralTable table) {
  __shared__ double partial[kSpectralWarps];
  const int of = row_of_block(table);
  const SpectralRow& weight = table.row[of];
  const std::int64_t row = blockIdx.x - table.first_block[of], columns = weight.columns;
  const T* const matrix = static_cast<const T*>(weight.matrix) + row * columns;
  double norm = 1, sum = 0;
  if (weight.iterates) {
    double squares = 0;
    for (std::int64_t tile = threadIdx.x; tile < weight.tiles(); tile += kSpectralThreads) squares += weight.squares[tile];
    norm = fmax(sqrt(block_sum(squares, partial)), kLeastNorm);
#pragma unroll 4
    for (std::int64_t c = threadIdx.x; c < columns; c += kSpectralThreads)
      sum = fma(static_cast<double>(matrix[c]), weight.raw_right[c], sum);
  } else {
    const T* const right = static_cast<const T*>(weight.right_start);
#pragma unroll 4
    for (std::int64_t c = threadIdx.x; c < columns; c += kSpectralThreads)
      sum = fma(static_cast<double>(matrix[c]), static_cast<double>(right[c]), sum);
  }
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) weight.raw_left[row] = sum / norm;
  if (row != 0 || !weight.iterates) return;
  for (std::int64_t c = threadIdx.x; c < columns; c += kSpectralThreads)
    static_cast<T*>(weight.right_start)[c] = static_cast<T*>(weight.right)[c] = static_cast<T>(weight.raw_right[c] / norm);
}

/// Blocks (weight).
template <class T>
__global__ void __launch_bounds__(kSpectralThreads) spectral_estimate_kernel(const __grid_constant__ SpectralTable table) {
  __shared__ double partial[kSpectralWarps];
  const SpectralRow& weight = table.row[row_of_block(table)];
  double norm = 1;
  if (weight.iterates) {
    double squares = 0;
    for (std::int64_t r = threadIdx.x; r < weight.rows; r += kSpectralThreads)
      squares = fma(weight.raw_left[r], weight.raw_left[r], squares);
    norm = fmax(sqrt(block_sum(squares, partial)), kLeastNorm);
  }
  double along = 0;
  for (std::int64_t r = threadIdx.x; r < weight.rows; r += kSpectralThreads) {
    T* const start = static_cast<T*>(weight.left_start) + r;
    if (weight.iterates) *start = static_cast<T*>(weight.left)[r] = static_cast<T>(weight.raw_left[r] / norm);
    along = fma(static_cast<double>(*start), weight.raw_left[r], along);
  }
  along = block_sum(along, partial);
  if (threadIdx.x == 0) *static_cast<T*>(weight.sigma) = static_cast<T>(along);
}

/// Blocks (row).
template <class T, class W>
__global__ void __launch_bounds__(kSpectralThreads) spectral_divide_kernel(const __grid_constant__ SpectralTable table) {
  const int of = row_of_block(table);
  const SpectralRow& weight = table.row[of];
  const std::int64_t row = blockIdx.x - table.first_block[of], columns = weight.columns;
  const T* const matrix = static_cast<const T*>(weight.matrix) + row * columns;
  W* const w = static_cast<W*>(weight.w) + row * columns;
  const T sigma = *static_cast<const T*>(weight.sigma);
  for (std::int64_t c = threadIdx.x; c < columns; c += kSpectralThreads) w[c] = convert<W>(matrix[c] / sigma);
}

/// A gradient.
struct SpectralGradientRow {
  const void *dw, *matrix, *sigma, *left, *right;
  void* out;
  double *sums, *share;  // (rows), (1)
  std::int64_t count;    // blocks of the launch
  std::int64_t rows, columns;
};
using SpectralGradientTable = Table<SpectralGradientRow, NoStep>;

/// Blocks (row).
template <class T, class W>
__global__ void __launch_bounds__(kSpectralThreads)
    spectral_products_kernel(const __grid_constant__ SpectralGradientTable table) {
  __shared__ double partial[kSpectralWarps];
  const int of = row_of_block(table);
  const SpectralGradientRow& weight = table.row[of];
  const std::int64_t row = blockIdx.x - table.first_block[of], columns = weight.columns;
  const W* const dw = static_cast<const W*>(weight.dw) + row * columns;
  const T* const matrix = static_cast<const T*>(weight.matrix) + row * columns;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t c = threadIdx.x; c < columns; c += kSpectralThreads)
    sum = fma(convert<double>(dw[c]), static_cast<double>(matrix[c]), sum);
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) weight.sums[row] = sum;
}

/// Blocks (weight).
template <class T>
__global__ void __launch_bounds__(kSpectralThreads) spectral_share_kernel(const __grid_constant__ SpectralGradientTable table) {
  __shared__ double partial[kSpectralWarps];
  const SpectralGradientRow& weight = table.row[row_of_block(table)];
  double sum = 0;
  for (std::int64_t r = threadIdx.x; r < weight.rows; r += kSpectralThreads) sum += weight.sums[r];
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) *weight.share = sum / static_cast<double>(*static_cast<const T*>(weight.sigma));
}

/// Blocks (row).
template <class T, class W>
__global__ void __launch_bounds__(kSpectralThreads)
    spectral_gradient_kernel(const __grid_constant__ SpectralGradientTable table) {
  const int of = row_of_block(table);
  const SpectralGradientRow& weight = table.row[of];
  const std::int64_t row = blockIdx.x - table.first_block[of], columns = weight.columns;
  const W* const dw = static_cast<const W*>(weight.dw) + row * columns;
  const T* const right = static_cast<const T*>(weight.right);
  T* const out = static_cast<T*>(weight.out) + row * columns;
  const T sigma = *static_cast<const T*>(weight.sigma);
  const T share = static_cast<T>(*weight.share * static_cast<double>(static_cast<const T*>(weight.left)[row]));
  for (std::int64_t c = threadIdx.x; c < columns; c += kSpectralThreads)
    out[c] = (convert<T>(dw[c]) - share * right[c]) / sigma;
}

/// Launches `kernel` for tables of the rows, with blocks_of(row) blocks for each.
template <class Row, class BlocksOf>
void launch_for_all(void (*kernel)(Table<Row, NoStep>), std::vector<Row> rows, cudaStream_t stream, const BlocksOf& blocks_of) {
  for (Row& row : rows) row.count = blocks_of(row);
  const auto launch = [&](const Table<Row, NoStep>& table, std::uint32_t blocks) {
    kernel<<<blocks, kSpectralThreads, 0, stream>>>(table);
  };
  for_each_table(std::span<const Row>(rows), NoStep{}, launch, /*chunk=*/1);
  check_launch("spectral_norm");
}

/// Consecutive parts of scratch memory.
class SpectralParts {
 public:
  explicit SpectralParts(double* first) : next_(first) {}
  double* take(std::int64_t count) { return std::exchange(next_, next_ + count); }

 private:
  double* next_;
};

SpectralRow spectral_row(const SpectralWeight& weight) {
  SpectralRow row{};
  row.matrix = weight.W.raw(), row.w = weight.w.raw(), row.sigma = weight.sigma.raw();
  row.left_start = weight.left_start.raw(), row.right_start = weight.right_start.raw();
  row.left = weight.left.raw(), row.right = weight.right.raw();
  row.rows = weight.left.numel(), row.columns = weight.right.numel(), row.iterates = weight.iterates;
  return row;
}

}  // namespace

void spectral_norm(std::span<const SpectralWeight> weights, int device, cudaStream_t stream) {
  std::int64_t numbers = 0;
  for (const SpectralWeight& weight : weights) {
    const SpectralRow row = spectral_row(weight);
    numbers += row.rows + (row.iterates ? (row.pieces() + 1) * row.columns + row.tiles() : 0);
  }
  const Buffer scratch(static_cast<std::size_t>(numbers) * sizeof(double), device);
  SpectralParts parts(scratch.as<double>());
  std::map<std::pair<DType, DType>, std::vector<SpectralRow>> lists;
  for (const SpectralWeight& weight : weights) {
    SpectralRow row = spectral_row(weight);
    row.raw_left = parts.take(row.rows);
    if (row.iterates) {
      row.sums = parts.take(row.pieces() * row.columns);
      row.raw_right = parts.take(row.columns);
      row.squares = parts.take(row.tiles());
    }
    lists[{weight.W.dtype(), weight.w.dtype()}].push_back(row);
  }
  for (const auto& [dtypes, rows] : lists)
    with_weight_types(dtypes.first, dtypes.second, [&, &all = rows]<class T, class W>(T, W) {
      const auto one = [](const SpectralRow&) { return 1; };
      const auto one_a_row = [](const SpectralRow& row) { return row.rows; };
      const auto pieces = [](const SpectralRow& row) { return row.iterates ? row.pieces() * row.tiles() : 0; };
      const auto tiles = [](const SpectralRow& row) { return row.iterates ? row.tiles() : 0; };
      launch_for_all(spectral_columns_kernel<T>, all, stream, pieces);
      launch_for_all(spectral_add_kernel, all, stream, tiles);
      launch_for_all(spectral_rows_kernel<T>, all, stream, one_a_row);
      launch_for_all(spectral_estimate_kernel<T>, all, stream, one);
      launch_for_all(spectral_divide_kernel<T, W>, all, stream, one_a_row);
    });
}

void spectral_norm_backward(std::span<const SpectralWeightGradient> gradients, int device, cudaStream_t stream) {
  std::int64_t numbers = 0;
  for (const SpectralWeightGradient& of : gradients) numbers += of.left.numel() + 1;
  const Buffer scratch(static_cast<std::size_t>(numbers) * sizeof(double), device);
  SpectralParts parts(scratch.as<double>());
  std::map<std::pair<DType, DType>, std::vector<SpectralGradientRow>> lists;
  for (const SpectralWeightGradient& of : gradients)
    lists[{of.W.dtype(), of.dw.dtype()}].push_back({of.dw.raw(), of.W.raw(), of.sigma.raw(), of.left.raw(), of.right.raw(),
                                                    of.dW.raw(), parts.take(of.left.numel()), parts.take(1), 0, of.left.numel(),
                                                    of.right.numel()});
  for (const auto& [dtypes, rows] : lists)
    with_weight_types(dtypes.first, dtypes.second, [&, &all = rows]<class T, class W>(T, W) {
      const auto one = [](const SpectralGradientRow&) { return 1; };
      const auto one_a_row = [](const SpectralGradientRow& row) { return row.rows; };
      launch_for_all(spectral_products_kernel<T, W>, all, stream, one_a_row);
      launch_for_all(spectral_share_kernel<T>, all, stream, one);
      launch_for_all(spectral_gradient_kernel<T, W>, all, stream, one_a_row);
    });
}

}  // namespace polyphase::cuda
