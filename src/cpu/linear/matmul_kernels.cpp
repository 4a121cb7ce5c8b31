// The register tile of a matrix product: kRows x kVectors vectors of sums. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/linear/matmul_kernels.hpp"

#include "cpu/isa_target.hpp"
#include "cpu/isa_transpose.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

// Sums take kMostRows * kVectors registers, kVectors more hold b, one a. Fewer than there are with 32 registers: 16 sums hide
// the latency of a multiply-add, and a product of few rows fills 8 better than 12. Both numbers of rows suit the blocks of a
// transposition.
constexpr int kMostRows = kVectorRegisters == 32 ? 8 : 4;
constexpr int kVectors = kVectorRegisters == 32 ? 2 : 3;

template <class T, int kRows>
void multiply(const T* a, const T* b, std::int64_t K, T* out, std::int64_t out_stride, std::int64_t valid_rows,
              std::int64_t valid_columns, bool accumulate) {
  constexpr int kStep = kLanes<T>;
  Vector<T> sums[kRows][kVectors]{};
  for (std::int64_t k = 0; k < K; ++k, a += kRows, b += kVectors * kStep) {
    Vector<T> b_k[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) b_k[v] = load(b + v * kStep);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector<T> a_r = broadcast(a[r]);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(a_r, b_k[v], sums[r][v]);
    }
  }
  T tile[kRows][kVectors * kStep];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) store(&tile[r][v * kStep], sums[r][v]);
  for (std::int64_t r = 0; r < valid_rows; ++r)
    for (std::int64_t c = 0; c < valid_columns; ++c) {
      T& to = out[r * out_stride + c];
      to = accumulate ? to + tile[r][c] : tile[r][c];
    }
}

// a*b + c, rounded as by fma().
POLYPHASE_INLINE Float8 fma_eight(Float8 a, Float8 b, Float8 c) {
#if defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  float32x4_t x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof a);
  std::memcpy(y, &b, sizeof b);
  std::memcpy(z, &c, sizeof c);
  for (int i = 0; i < 2; ++i) z[i] = vfmaq_f32(z[i], x[i], y[i]);
  std::memcpy(&c, z, sizeof c);
  return c;
#else
  return a * b + c;
#endif
}

// 32 columns at a time: rows of b are read in runs, and four sums of each row are outstanding.
template <int kRows>
void multiply_few(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, std::int64_t K,
                  std::int64_t columns, float* out, std::int64_t out_stride, bool accumulate) {
  constexpr int kGroups = 4, kColumns = 8 * kGroups;
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const float* from[kColumns];
    for (int i = 0; i < kColumns; ++i) from[i] = b + (first + i < columns ? first + i : columns - 1) * b_stride;
    Float8 sums[kRows][kGroups]{};
    std::int64_t k = 0;
    for (; k + 8 <= K; k += 8) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        Float8 rows[8], values[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) std::memcpy(&rows[i], from[8 * g + i] + k, sizeof rows[i]);
        transpose_eight(rows, values);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j)
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) sums[r][g] = fma_eight(a[r * a_stride + k + j] - Float8{}, values[j], sums[r][g]);
      }
    }
    for (; k < K; ++k)
      for (int g = 0; g < kGroups; ++g) {
        Float8 values;
        for (int i = 0; i < 8; ++i) values[i] = from[8 * g + i][k];
        for (int r = 0; r < kRows; ++r) sums[r][g] = fma_eight(a[r * a_stride + k] - Float8{}, values, sums[r][g]);
      }
    for (int r = 0; r < kRows; ++r) {
      float row[kColumns];
      std::memcpy(row, sums[r], sizeof row);
      float* to = out + r * out_stride + first;
      for (int i = 0; i < kColumns && first + i < columns; ++i) to[i] = accumulate ? to[i] + row[i] : row[i];
    }
  }
}

template <class T, int kRows>
constexpr MatmulTile<T> kTile = {kRows, kVectors* kLanes<T>, multiply<T, kRows>};

constexpr MatmulKernels kKernels = {{kTile<float, kMostRows>, kTile<float, 4>, kTile<float, 2>, kTile<float, 1>},
                                    {kTile<double, kMostRows>, kTile<double, 4>, kTile<double, 2>, kTile<double, 1>},
                                    {multiply_few<1>, multiply_few<2>, multiply_few<3>, multiply_few<4>}};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const MatmulKernels& matmul_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
