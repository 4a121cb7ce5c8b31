// Instances of the source_bulk kernel with a residual or a derivative (BulkStore::aux).

#include <ostream>

#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/launch.cuh"

namespace polyphase::cuda::tensor_core {

void source_bulk_gather_aux(const Gather& call) { gather_source_bulk<true>(call); }

}  // namespace polyphase::cuda::tensor_core
