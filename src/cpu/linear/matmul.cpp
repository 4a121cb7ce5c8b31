// Blocked matrix product over packed panels (K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication",
// 2008). Eigen's product is compiled for the oldest x86-64, and the convolution with K=1 needs contiguous operands and one left
// operand for the whole batch; packing accepts any strides.

#include "cpu/linear/matmul.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/linear/matmul_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

// A block of a (kBlockRows, kBlockK) fits in L2 with a panel of b, in f64 too.
constexpr std::int64_t kBlockRows = 192;
constexpr std::int64_t kBlockColumns = 256;
constexpr std::int64_t kBlockK = 256;

std::int64_t panels(std::int64_t size, std::int64_t width) { return (size + width - 1) / width; }

// `size` x K elements in panels of `width`: to[panel][k][i], zero past `size`. Strides: along the panel, along K.
template <class T>
void pack(const T* from, std::int64_t stride, std::int64_t k_stride, std::int64_t size, std::int64_t K, std::int64_t width,
          T* to) {
  const auto transpose = pack_kernels<T>().transpose;
  for (std::int64_t first = 0; first < size; first += width, to += width * K) {
    const std::int64_t valid = std::min(width, size - first);
    const T* panel = from + first * stride;
    if (valid < width) std::fill(to, to + width * K, T{});
    if (stride == 1) {
      for (std::int64_t k = 0; k < K; ++k) std::copy(panel + k * k_stride, panel + k * k_stride + valid, to + k * width);
    } else if (k_stride == 1) {
      transpose(panel, stride, valid, width, K, nullptr, to, width);
    } else {
      for (std::int64_t i = 0; i < valid; ++i)
        for (std::int64_t k = 0; k < K; ++k) to[k * width + i] = panel[i * stride + k * k_stride];
    }
  }
}

template <class T>
struct Strided {
  const T* data;
  std::int64_t row, column;
};

// out (rows, columns) = a (rows, K) * b (K, columns), at most kBlockRows x kBlockColumns. K is processed in order, block by
// block, so that neither tiling nor threads change the bits.
template <class T>
void multiply_block(const MatmulTile<T>& tile, Strided<T> a, Strided<T> b, T* out, std::int64_t out_stride, std::int64_t rows,
                    std::int64_t columns, std::int64_t K, std::vector<T>& packed_a, std::vector<T>& packed_b) {
  for (std::int64_t k = 0; k < K; k += kBlockK) {
    const std::int64_t depth = std::min(kBlockK, K - k);
    if constexpr (std::is_same_v<T, float>) {
      if (rows <= kFewRows && a.column == 1 && b.row == 1) {
        matmul_kernels().multiply_few[rows - 1](a.data + k, a.row, b.data + k, b.column, depth, columns, out, out_stride,
                                                k > 0);
        continue;
      }
    }
    packed_a.resize(static_cast<std::size_t>(panels(rows, tile.rows) * tile.rows * depth));
    packed_b.resize(static_cast<std::size_t>(tile.columns * depth));
    pack(a.data + k * a.column, a.row, a.column, rows, depth, tile.rows, packed_a.data());
    for (std::int64_t c = 0; c < columns; c += tile.columns) {
      const std::int64_t valid = std::min(tile.columns, columns - c);
      pack(b.data + k * b.row + c * b.column, b.column, b.row, valid, depth, tile.columns, packed_b.data());
      for (std::int64_t r = 0; r < rows; r += tile.rows)
        tile.multiply(packed_a.data() + r * depth, packed_b.data(), depth, out + r * out_stride + c, out_stride,
                      std::min(tile.rows, rows - r), valid, k > 0);
    }
  }
}

// The lowest tile that has `rows` rows, else the highest.
template <class T>
const MatmulTile<T>& tile_for(const MatmulTile<T> (&tiles)[kMatmulTiles], std::int64_t rows) {
  const MatmulTile<T>* chosen = tiles;
  for (const MatmulTile<T>& tile : tiles)
    if (tile.rows >= rows) chosen = &tile;
  return *chosen;
}

template <class T>
void matmul_typed(const MatmulTile<T> (&tiles)[kMatmulTiles], const Tensor& out, const Tensor& a, const Tensor& b) {
  const std::int64_t M = out.shape()[1], N = out.shape()[2], K = a.shape()[2];
  const MatmulTile<T>& tile = tile_for(tiles, M);
  const std::int64_t row_blocks = panels(M, kBlockRows), column_blocks = panels(N, kBlockColumns);
  const std::int64_t work = std::min(M, kBlockRows) * std::min(N, kBlockColumns) * K / 8 + 1;
  parallel_for(
      out.shape()[0] * row_blocks * column_blocks, kElementGrain / work + 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<T> packed_a, packed_b;
        for (std::int64_t task = begin; task < end; ++task) {
          const std::int64_t batch = task / (row_blocks * column_blocks);
          const std::int64_t r = task / column_blocks % row_blocks * kBlockRows;
          const std::int64_t c = task % column_blocks * kBlockColumns;
          const Strided<T> left{a.data<T>() + batch * a.strides()[0] + r * a.strides()[1], a.strides()[1], a.strides()[2]};
          const Strided<T> right{b.data<T>() + batch * b.strides()[0] + c * b.strides()[2], b.strides()[1], b.strides()[2]};
          multiply_block(tile, left, right, out.data<T>() + (batch * M + r) * N + c, N, std::min(kBlockRows, M - r),
                         std::min(kBlockColumns, N - c), K, packed_a, packed_b);
        }
      });
}

Tensor widened(const Tensor& tensor) {
  Tensor wide = Tensor::empty(tensor.shape(), {DType::f32, tensor.device()});
  copy(wide, tensor);
  return wide;
}

}  // namespace

void matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  require<DTypeError>(is_floating_point(out.dtype()), "matmul: expected a floating-point dtype, got ", out.dtype());
  if (out.numel() == 0) return;
  if (a.numel() == 0) return fill(out, 0);
  if (out.dtype() == DType::f64) return matmul_typed(matmul_kernels().f64, out, a, b);
  if (out.dtype() == DType::f32) return matmul_typed(matmul_kernels().f32, out, a, b);
  const Tensor sum = Tensor::empty(out.shape(), {DType::f32, out.device()});
  matmul_typed(matmul_kernels().f32, sum, widened(a), widened(b));
  copy(out, sum);
}

}  // namespace polyphase::cpu
