#pragma once
// A kernel that starts while the one before it ends (sm_90): its blocks are there when that one's results are, which hides
// the few microseconds between two launches.

#include <cuda_runtime.h>

#include <utility>

#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// kernel<<<grid, block, shared, stream>>>(arguments...), started as soon as all blocks of the kernel before it on the stream
/// have called let_dependents_start() or ended. Until wait_for_grid_before() it may touch nothing that others read or write.
/// Where code for older GPUs runs, which does not wait, behind the other kernel's end.
/// check_launch() is the caller's.
template <class... Parameters, class... Arguments>
void launch_behind(void (*kernel)(Parameters...), unsigned grid, unsigned block, std::size_t shared, cudaStream_t stream,
                   Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  int device = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  config.numAttrs = properties(device).code_arch >= 90 ? 1 : 0;
  CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

#ifdef __CUDACC__
/// Waits until the kernel before this one has ended and its writes can be seen; at once where it was not launched behind one.
__device__ __forceinline__ void wait_for_grid_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Lets the kernel that is launched behind this one start, once all blocks have said so. Behind wait_for_grid_before(): three
/// launches under way at a time have cost up to 40 us (docs/kernels/wgrad.md).
__device__ __forceinline__ void let_dependents_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
#endif

}  // namespace polyphase::cuda
