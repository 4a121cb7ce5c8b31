// Instances of the source_tma kernel with a residual or a derivative, which are loaded into the staging (TmaMode::kAux).

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_tma/launch.cuh"

namespace polyphase::cuda::tensor_core {

void source_tma_gather_aux(const Gather& call) {
  if (call.precision == Precision::tf32) return gather_source_tma<ScaledF16, true>(call);
  return gather_source_tma<SplitF16, true>(call);
}

}  // namespace polyphase::cuda::tensor_core
