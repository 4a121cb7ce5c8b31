#pragma once
// The elements of an output row that no tap reaches.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::tensor_core {

/// write(t, nothing()) for those next to class a of a position, in forward; the last class also has the phases without taps.
/// `t0`: the element of the position's class 0.
template <class Nothing, class Write>
__device__ __forceinline__ void for_untouched(const TapGemm& gemm, std::int64_t t0, std::int64_t a, const Nothing& nothing,
                                              const Write& write) {
  const std::int64_t end = a + 1 == gemm.classes ? gemm.phase_classes : a + 1;
  if (gemm.out_gcd == 1 && end == a + 1) return;
  const auto value = nothing();
  for (std::int64_t b = a; b < end; ++b) {
    for (std::int64_t r = b == a ? 1 : 0; r < gemm.out_gcd; ++r) {
      const std::int64_t t = t0 + b * gemm.out_class_step + r;
      if (t >= 0 && t < gemm.out_length) write(t, value);
    }
  }
}

}  // namespace polyphase::cuda::tensor_core
