#pragma once
// The inner loop of matrix products, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

/// One tile of a product of packed panels; its size is what fits in registers.
template <class T>
struct MatmulTile {
  std::int64_t rows, columns;
  /// out[r * out_stride + c] (+)= sum over k of a[k, r] * b[k, c] for r < valid_rows, c < valid_columns, in the order of k.
  /// a (K, rows), b (K, columns), both contiguous. Without `accumulate` out is overwritten.
  void (*multiply)(const T* a, const T* b, std::int64_t K, T* out, std::int64_t out_stride, std::int64_t valid_rows,
                   std::int64_t valid_columns, bool accumulate);
};

inline constexpr int kMatmulTiles = 4;
inline constexpr int kFewRows = 4;

/// Tiles of falling numbers of rows: products of few rows take a lower one. The bits do not depend on the tile.
struct MatmulKernels {
  MatmulTile<float> f32[kMatmulTiles];
  MatmulTile<double> f64[kMatmulTiles];
  /// Up to kFewRows rows where b is transposed in memory, without packing: out[r * out_stride + c] (+)= sum over k of
  /// a[r * a_stride + k] * b[c * b_stride + k] for c < columns, with the bits of the tiles. The number of rows is the index
  /// + 1.
  void (*multiply_few[kFewRows])(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, std::int64_t K,
                                 std::int64_t columns, float* out, std::int64_t out_stride, bool accumulate);
};

template <Isa isa>
const MatmulKernels& matmul_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
inline const MatmulKernels& matmul_kernels() {
  return dispatch_isa([](auto tag) -> const MatmulKernels& { return matmul_kernels<tag.value>(); });
}
#endif

}  // namespace polyphase::cpu
