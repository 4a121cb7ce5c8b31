#include "cuda/conv/tensor_core/wgrad/mma_sync/mma_sync.hpp"

#include <ostream>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/operand/parts.hpp"
#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda::tensor_core {

std::optional<std::string> mma_wgrad_problem(const ConvProblem& problem, Precision precision, int sm_count, int shared_limit) {
  const std::size_t limit = conv_workspace_limit();
  if (problem.N == 0 || plan_mma_wgrad(problem, parts_of(problem, precision), sm_count, shared_limit, limit))
    return std::nullopt;
  return concat("no tile of it fits ", shared_limit, " bytes of shared memory, and its operands and partial sums ", limit,
                " bytes of workspace");
}

void mma_wgrad_as(const WgradCall& call, Precision precision) {
  const DeviceProperties& gpu = properties(call.device);
  const auto tiling = plan_mma_wgrad(call.problem, parts_of(call.problem, precision), gpu.sm_count, gpu.shared_bytes_per_block,
                                     conv_workspace_limit());
  require<NotImplemented>(tiling.has_value(), "conv tensor_core: expected a weight gradient that can_implement allows, got ",
                          call.problem);
  mma_wgrad_as(call, precision, *tiling);
}

void mma_wgrad_as(const WgradCall& call, Precision precision, const MmaWgradTiling& tiling) {
  switch (call.problem.dtype) {
    case DType::f16:
      return mma_wgrad<F16>(call, tiling);
    case DType::bf16:
      return mma_wgrad<Bf16>(call, tiling);
    default:
      return precision == Precision::tf32 ? mma_wgrad<ScaledF16>(call, tiling) : mma_wgrad<SplitF16>(call, tiling);
  }
}

}  // namespace polyphase::cuda::tensor_core
