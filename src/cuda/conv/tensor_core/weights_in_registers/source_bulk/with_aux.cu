// Weights in registers, with a residual or through a derivative (NarrowStore::late).

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/launch.cuh"

namespace polyphase::cuda::tensor_core {

void narrow_gather_late(const Gather& call) { gather_narrow<true>(call); }

}  // namespace polyphase::cuda::tensor_core
