// The register tile of a matrix product: kRows x kVectors vectors of sums. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/linear/matmul_kernels.hpp"

#include "cpu/isa_target.hpp"

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

template <class T, int kRows>
constexpr MatmulTile<T> kTile = {kRows, kVectors* kLanes<T>, multiply<T, kRows>};

constexpr MatmulKernels kKernels = {{kTile<float, kMostRows>, kTile<float, 4>, kTile<float, 2>, kTile<float, 1>},
                                    {kTile<double, kMostRows>, kTile<double, 4>, kTile<double, 2>, kTile<double, 1>}};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const MatmulKernels& matmul_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
