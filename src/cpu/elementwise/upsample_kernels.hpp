#pragma once
// The inner loops of linear upsampling, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

/// All functions continue to the end of the last whole vector, where the arrays must be readable and writable.
template <class T>
struct UpsampleKernels {
  /// out[p] = a_weight*a[p] + b_weight*b[p]; the second product is rounded separately.
  void (*blend)(T* out, const T* a, T a_weight, const T* b, T b_weight, std::int64_t count);
  /// sum[p] += weight*x[p], fused.
  void (*accumulate)(T* sum, const T* x, T weight, std::int64_t count);
};

inline constexpr std::int64_t kMostLanes = 16;  ///< upper limit for the lanes of any instruction set

template <Isa isa, class T>
const UpsampleKernels<T>& upsample_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
template <class T>
const UpsampleKernels<T>& upsample_kernels() {
  return dispatch_isa([](auto tag) -> const UpsampleKernels<T>& { return upsample_kernels<tag.value, T>(); });
}
#endif

}  // namespace polyphase::cpu
