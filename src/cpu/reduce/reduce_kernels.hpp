#pragma once
// The inner loops of reductions, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"
#include "tensor/map_op.hpp"

namespace polyphase::cpu {

/// Partial sums (or maxima) of a row: element i goes to lane i % kReduceLanes. The number is the same for every instruction
/// set, and so are the bits.
inline constexpr int kReduceLanes = 16;

/// Both add to the contents of the accumulators, in double: the error of a sum of n floats is at most n 2^-53.
template <class T>
struct ReduceFunctions {
  /// lanes[i % kReduceLanes] op= x[i]   for i < count; op as of ReduceOp.
  void (*row)(double* lanes, const T* x, std::int64_t count);
  /// sums[i] op= x[i]
  void (*columns)(double* sums, const T* x, std::int64_t count);
};

inline constexpr int kReduceOps = static_cast<int>(ReduceOp::min) + 1;

/// By ReduceOp.
struct ReduceKernels {
  ReduceFunctions<float> f32[kReduceOps];
  ReduceFunctions<double> f64[kReduceOps];
};

template <Isa isa>
const ReduceKernels& reduce_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
inline const ReduceKernels& reduce_kernels() {
  return dispatch_isa([](auto tag) -> const ReduceKernels& { return reduce_kernels<tag.value>(); });
}
#endif

}  // namespace polyphase::cpu
