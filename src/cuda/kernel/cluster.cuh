#pragma once
// Clusters of blocks that read each other's shared memory (code for sm_90 and later); elsewhere a block is its own cluster.

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <utility>

#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// Cluster size that every GPU with clusters supports.
inline constexpr int kMostCluster = 8;
/// The largest cluster on the device.
[[nodiscard]] inline int most_cluster(int device) { return properties(device).code_arch >= 90 ? kMostCluster : 1; }

/// kernel<<<grid, block, shared, stream>>>(arguments...) with clusters of `cluster` neighbouring blocks along x; 1 means none.
/// The caller calls check_launch().
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream,
                     unsigned cluster, Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

#ifdef __CUDACC__
/// The address in block `rank` of the cluster that corresponds to `own` in this block's shared memory.
template <class A>
__device__ __forceinline__ A* in_block(A* own, int rank) {
#if __CUDA_ARCH__ >= 900
  return cooperative_groups::this_cluster().map_shared_rank(own, static_cast<unsigned>(rank));
#else
  return own;
#endif
}

/// Waits for all threads of the cluster and makes their writes visible.
__device__ __forceinline__ void synchronize_cluster() {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::this_cluster().sync();
#else
  __syncthreads();
#endif
}

/// The sum of one word of each block, in order of rank, in S. All words are read before any is added: reading another block's
/// word takes as long as reading L2.
template <class S, class A>
__device__ __forceinline__ S sum_of_blocks(A* own, int blocks) {
  A words[kMostCluster];
#pragma unroll
  for (int rank = 0; rank < kMostCluster; ++rank) words[rank] = rank < blocks ? *in_block(own, rank) : A(0);
  S sum = static_cast<S>(words[0]);
#pragma unroll
  for (int rank = 1; rank < kMostCluster; ++rank) {
    if (rank < blocks) sum += static_cast<S>(words[rank]);
  }
  return sum;
}
#endif

}  // namespace polyphase::cuda
