// The inner loop of depthwise wgrad: one row against several shifted rows. An ISA source: see the rules in cpu/isa_target.hpp.
// One load per vector of x, and one (unaligned) load and one multiply-add per tap: limited by the loads, two per cycle.

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

// 0, 1, 2, ...
template <class T>
POLYPHASE_INLINE Vector<T> lanes() {
  Vector<T> v;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) v[i] = static_cast<T>(i);
  return v;
}

template <class T, int taps>
void correlate(const T* x, const T* y, const std::int64_t* offset, std::int64_t count, double* sums) {
  Vector<T> acc[taps] = {};
  const T* row[taps];
#pragma GCC unroll 8
  for (int k = 0; k < taps; ++k) row[k] = y + offset[k];
  std::int64_t p = 0;
  for (; p + kLanes<T> <= count; p += kLanes<T>) {
    const Vector<T> value = load(x + p);
#pragma GCC unroll 8
    for (int k = 0; k < taps; ++k) acc[k] = fma(value, load(row[k] + p), acc[k]);
  }
  if (p < count) {
    const Vector<T> value = load(x + p), rest = broadcast(static_cast<T>(count - p));
#pragma GCC unroll 8
    for (int k = 0; k < taps; ++k) acc[k] = fma(value, lanes<T>() < rest ? load(row[k] + p) : Vector<T>{}, acc[k]);
  }
  for (int k = 0; k < taps; ++k)
    for (int lane = 0; lane < kLanes<T>; ++lane) sums[k] += static_cast<double>(acc[k][lane]);
}

template <class T>
constexpr CorrelateKernels<T> kTable = {kLanes<T>,
                                        {correlate<T, 1>, correlate<T, 2>, correlate<T, 3>, correlate<T, 4>, correlate<T, 5>,
                                         correlate<T, 6>, correlate<T, 7>, correlate<T, 8>}};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const CorrelateKernels<float>& correlate_kernels<Isa::POLYPHASE_ISA, float>() {
  return POLYPHASE_ISA::kTable<float>;
}
template <>
const CorrelateKernels<double>& correlate_kernels<Isa::POLYPHASE_ISA, double>() {
  return POLYPHASE_ISA::kTable<double>;
}

}  // namespace polyphase::cpu
