// Boxes with a residual or through a derivative, which come to where outputs are staged (BoxesMode::kBeside).

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_tma/launch.cuh"

namespace polyphase::cuda::tensor_core {

void boxes_gather_beside(const Gather& call) {
  if (call.precision == Precision::tf32) return gather_boxes<OneHalf, true>(call);
  return gather_boxes<SplitHalf, true>(call);
}

}  // namespace polyphase::cuda::tensor_core
