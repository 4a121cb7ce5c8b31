#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/launch.cuh"

namespace polyphase::cuda::tensor_core {

void source_bulk_gather(const Gather& call) {
  if (call.epilogue.has_aux()) return source_bulk_gather_aux(call);
  gather_source_bulk<false>(call);
}

}  // namespace polyphase::cuda::tensor_core
