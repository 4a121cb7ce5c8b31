// Weighted sums of rows. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/elementwise/upsample_kernels.hpp"

#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

template <class T>
void blend(T* out, const T* a, T a_weight, const T* b, T b_weight, std::int64_t count) {
  const Vector<T> u = broadcast(a_weight), v = broadcast(b_weight);
  for (std::int64_t p = 0; p < count; p += kLanes<T>) store<T>(out + p, fma(u, load(a + p), v * load(b + p)));
}

template <class T>
void accumulate(T* sum, const T* x, T weight, std::int64_t count) {
  const Vector<T> w = broadcast(weight);
  for (std::int64_t p = 0; p < count; p += kLanes<T>) store<T>(sum + p, fma(w, load(x + p), load(sum + p)));
}

template <class T>
constexpr UpsampleKernels<T> kKernels = {blend<T>, accumulate<T>};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const UpsampleKernels<float>& upsample_kernels<Isa::POLYPHASE_ISA, float>() {
  return POLYPHASE_ISA::kKernels<float>;
}
template <>
const UpsampleKernels<double>& upsample_kernels<Isa::POLYPHASE_ISA, double>() {
  return POLYPHASE_ISA::kKernels<double>;
}

}  // namespace polyphase::cpu
