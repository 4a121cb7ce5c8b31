#include <algorithm>

#include "conv/workspace.hpp"
#include "cuda/allocator.hpp"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_wgrad.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_prepare.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
void wgrad_as(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream) {
  using T = typename Operand::Source;
  const DeviceProperties& gpu = properties(device);
  const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
  if (problem.N == 0) {
    CHECK_CUDA(cudaMemsetAsync(w, 0, static_cast<std::size_t>(weights) * sizeof(T), stream));
    return;
  }
  const WgradSteps steps = make_wgrad_steps(problem, Operand::kParts, Operand::kVector, gpu.sm_count,
                                            gpu.shared_bytes_per_block, conv_workspace_limit());
  const auto* xs = static_cast<const T*>(x);
  const auto* ys = static_cast<const T*>(y);
  const Buffer partial(static_cast<std::size_t>(steps.partial_slices * weights) * sizeof(float), device);
  const Buffer state_buffer(sizeof(WgradState), device);
  auto* state = state_buffer.as<WgradState>();
  CHECK_CUDA(cudaMemsetAsync(state, 0, sizeof(WgradState), stream));
  if constexpr (Operand::kSplit) {
    wgrad_scales_kernel<<<2 * kSampleBlocks, kPrepareThreads, 0, stream>>>(xs, problem.N * problem.C_in * problem.L_in, ys,
                                                                           problem.N * problem.C_out * problem.L_out, state);
    check_launch("conv tensor_core: wgrad scales");
  }
  auto* kernel = steps.taps == 1   ? wgrad_kernel<Operand, 1>
                 : steps.taps == 2 ? wgrad_kernel<Operand, 2>
                                   : wgrad_kernel<Operand, 3>;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  kernel<<<static_cast<unsigned>(steps.jobs * steps.slices), 384, static_cast<std::size_t>(steps.shared_bytes), stream>>>(
      problem, steps, xs, ys, partial.as<float>(), state);
  check_launch("conv tensor_core: wgrad");
  reduce_slices(partial.as<float>(), weights, steps.partial_slices, static_cast<T*>(w), stream);
  if constexpr (Operand::kSplit) {
    wgrad_repair_kernel<<<static_cast<unsigned>(std::min<std::int64_t>(weights, 4 * gpu.sm_count)), 256, 0, stream>>>(
        problem, xs, ys, static_cast<T*>(w), state);
    check_launch("conv tensor_core: wgrad repair");
  }
}

}  // namespace

void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, int device, cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::f16:
      return wgrad_as<Half>(problem, x, y, w, device, stream);
    case DType::bf16:
      return wgrad_as<Brain>(problem, x, y, w, device, stream);
    default:
      return wgrad_as<SplitHalf>(problem, x, y, w, device, stream);
  }
}

}  // namespace polyphase::cuda::tensor_core
