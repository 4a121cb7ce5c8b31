#pragma once
// The inner loops of elementwise work, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"
#include "tensor/map_op.hpp"

namespace polyphase::cpu {

inline constexpr int kMapOps = static_cast<int>(MapOp::smooth_l1_grad) + 1;

/// out[i] = op(inputs[0][i], ...) for i < count. If constant[k], input k is the single element inputs[k][0]. An element's bits
/// depend on its operands only, not on its place. `out` may be an input.
template <class T>
using MapRow = void (*)(T* out, const T* const* inputs, const bool* constant, std::int64_t count, MapScalars scalars);

/// One row function per MapOp.
struct MapKernels {
  MapRow<float> f32[kMapOps];
  MapRow<double> f64[kMapOps];
};

template <Isa isa>
const MapKernels& map_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
inline const MapKernels& map_kernels() {
  return dispatch_isa([](auto tag) -> const MapKernels& { return map_kernels<tag.value>(); });
}
#endif

}  // namespace polyphase::cpu
