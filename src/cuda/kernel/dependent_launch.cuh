#pragma once
// Programmatic dependent launch (sm_90): a kernel starts while the one before it ends, which hides the few microseconds between
// two launches.

#include <cuda_runtime.h>

#include <utility>

#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// kernel<<<grid, block, shared, stream>>>(arguments...). If `early`, it starts as soon as all blocks of the previous kernel on
/// the stream have called let_dependents_start() or ended. Before wait_for_grid_before() it must not touch anything that others
/// read or write. Code for older GPUs does not wait, so there it starts after the other kernel's end. The caller calls
/// check_launch().
template <class... Parameters, class... Arguments>
void launch_dependent(bool early, void (*kernel)(Parameters...), unsigned grid, unsigned block, std::size_t shared,
                      cudaStream_t stream, Arguments&&... arguments) {
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
  config.numAttrs = early && properties(device).code_arch >= 90 ? 1 : 0;
  CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}
/// launch_dependent(), early.
template <class... Parameters, class... Arguments>
void launch_behind(void (*kernel)(Parameters...), unsigned grid, unsigned block, std::size_t shared, cudaStream_t stream,
                   Arguments&&... arguments) {
  launch_dependent(true, kernel, grid, block, shared, stream, std::forward<Arguments>(arguments)...);
}

#ifdef __CUDACC__
/// Waits until the previous kernel has ended and its writes are visible; returns immediately without a dependent launch.
__device__ __forceinline__ void wait_for_grid_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Lets the next kernel start once all blocks have called this. Call it after wait_for_grid_before(): three overlapping
/// launches have cost up to 40 us (docs/kernels/wgrad.md).
__device__ __forceinline__ void let_dependents_start() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
#endif

}  // namespace polyphase::cuda
