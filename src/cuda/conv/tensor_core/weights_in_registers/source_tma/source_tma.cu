#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_tma/launch.cuh"

namespace polyphase::cuda::tensor_core {

void boxes_gather(const Gather& call) {
  if (call.epilogue.is_late()) return boxes_gather_beside(call);
  if (call.precision == Precision::tf32) return gather_boxes<OneHalf, false>(call);
  return gather_boxes<SplitHalf, false>(call);
}

}  // namespace polyphase::cuda::tensor_core
