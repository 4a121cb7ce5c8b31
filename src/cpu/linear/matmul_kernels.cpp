// The register tile of a matrix product: kRows x 2 vectors of sums. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/linear/matmul_kernels.hpp"

#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

// Sums take 2 * kRows registers; two more hold b, one a.
constexpr int kRows = kVectorRegisters == 32 ? 12 : 6;

template <class T>
void multiply(const T* a, const T* b, std::int64_t K, T* out, std::int64_t out_stride, std::int64_t valid_rows,
              std::int64_t valid_columns, bool accumulate) {
  constexpr int kStep = kLanes<T>;
  Vector<T> sums[kRows][2]{};
  for (std::int64_t k = 0; k < K; ++k, a += kRows, b += 2 * kStep) {
    const Vector<T> b0 = load(b), b1 = load(b + kStep);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Vector<T> a_r = broadcast(a[r]);
      sums[r][0] = fma(a_r, b0, sums[r][0]);
      sums[r][1] = fma(a_r, b1, sums[r][1]);
    }
  }
  T tile[kRows][2 * kStep];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    store(&tile[r][0], sums[r][0]);
    store(&tile[r][kStep], sums[r][1]);
  }
  for (std::int64_t r = 0; r < valid_rows; ++r)
    for (std::int64_t c = 0; c < valid_columns; ++c) {
      T& to = out[r * out_stride + c];
      to = accumulate ? to + tile[r][c] : tile[r][c];
    }
}

constexpr MatmulKernels kKernels = {{kRows, 2 * kLanes<float>, multiply<float>}, {kRows, 2 * kLanes<double>, multiply<double>}};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const MatmulKernels& matmul_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
