#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_tma/launch.cuh"

namespace polyphase::cuda::tensor_core {

void source_tma_gather(const Gather& call) {
  if (call.epilogue.has_aux()) return source_tma_gather_aux(call);
  if (call.precision == Precision::tf32) return gather_source_tma<ScaledF16, false>(call);
  return gather_source_tma<SplitF16, false>(call);
}

}  // namespace polyphase::cuda::tensor_core
