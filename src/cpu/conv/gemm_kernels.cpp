// The register-tile kernels of the CPU convolutions. An ISA source: see the rules in cpu/isa_target.hpp.
//
// out (MR rows, NV vectors) = start + sum over j of w[j] (MR) times x[offset[j]] (NV vectors). MR*NV accumulators stay in
// registers for the whole sum, so partial results are never stored. Per step: NV unaligned loads (two load slots each if they
// cross a cache line), MR broadcasts, one offset, MR*NV multiply-adds.
//   AVX-512, 8 x 3: 24 accumulators of 32 registers; 15 loads against 24 multiply-adds, that is 12 cycles: limited by
// arithmetic.
//   AVX2,    4 x 3: 12 accumulators of 16 registers; 8 loads against 12 multiply-adds.
// Few output channels get fewer rows and more vectors, to keep at least 8 independent sums outstanding (latency 4, two per
// cycle).

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

template <class T, int MR, int NV>
void micro_kernel(const T* w, const T* x, const std::int32_t* offset, std::int64_t count, const T* start, T* out,
                  std::int64_t pitch) {
  Vector<T> acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) acc[m][v] = start != nullptr ? broadcast(start[m]) : load(out + m * pitch + v * kLanes<T>);
#pragma GCC unroll 1
  for (std::int64_t j = 0; j < count; ++j, w += MR) {
    const T* from = x + offset[j];
    // A step's rows are far apart, so the hardware does not prefetch the next ones: 4 % if x fills L2.
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) __builtin_prefetch(x + offset[j + kOffsetSlack] + v * kLanes<T>);
    Vector<T> value[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) value[v] = load(from + v * kLanes<T>);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const Vector<T> weight = broadcast(w[m]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[m][v] = fma(weight, value[v], acc[m][v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) store<T>(out + m * pitch + v * kLanes<T>, acc[m][v]);
}

// The widest tiles whose accumulators, loaded vectors and one weight fit in registers. Baseline x86 needs one more register for
// the product.
constexpr int kWidest[kPanelKinds] = {8, kVectorRegisters == 32 ? 8 : 4,
                                      kVectorRegisters == 32 ? 6
                                      : kVectorBytes == 32   ? 3
                                                             : 2,
                                      kVectorRegisters == 32 ? 3 : 0};

template <class T, int kind, int vectors>
constexpr void fill(GemmKernels<T>& kernels) {
  if constexpr (vectors <= kWidest[kind]) {
    kernels.micro[kind][vectors] = micro_kernel<T, 1 << kind, vectors>;
    fill<T, kind, vectors + 1>(kernels);
  }
}

template <class T>
constexpr GemmKernels<T> table() {
  GemmKernels<T> kernels = {kLanes<T>, {kWidest[0], kWidest[1], kWidest[2], kWidest[3]}, {}};
  fill<T, 0, 1>(kernels);
  fill<T, 1, 1>(kernels);
  fill<T, 2, 1>(kernels);
  fill<T, 3, 1>(kernels);
  return kernels;
}

constexpr GemmKernels<float> kFloat = table<float>();
constexpr GemmKernels<double> kDouble = table<double>();

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const GemmKernels<float>& gemm_kernels<Isa::POLYPHASE_ISA, float>() {
  return POLYPHASE_ISA::kFloat;
}
template <>
const GemmKernels<double>& gemm_kernels<Isa::POLYPHASE_ISA, double>() {
  return POLYPHASE_ISA::kDouble;
}

}  // namespace polyphase::cpu
