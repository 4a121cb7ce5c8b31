// Rows of f32 with a residual or through a derivative (RowStores::late).

#include "cuda/conv/tensor_core/source_in_registers/stride1/launch.cuh"

namespace polyphase::cuda::tensor_core {

void gather_rows_late(const Gather& call) {
  if (call.precision == Precision::tf32) return gather_rows<OneHalf, true>(call);
  return gather_rows<SplitHalf, true>(call);
}

}  // namespace polyphase::cuda::tensor_core
