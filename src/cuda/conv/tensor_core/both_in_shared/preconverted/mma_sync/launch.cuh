#pragma once
// Launches of kernel.cuh.

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/kernel.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

template <class Operand, int kColumnWarps, int kPositionWarps, int kBlocksPerSm>
void launch_mma(const MmaCall<typename Operand::Source>& call) {
  using T = typename Operand::Source;
  constexpr int kThreads = kColumnWarps * kPositionWarps * 32;
  const PreconvertedTiling& tiling = call.tiling;
  const int warps = mma_warps_of_pass(call.gemm, tiling, {kColumnWarps, kPositionWarps, kBlocksPerSm}, int{sizeof(T)});
  const auto bytes = static_cast<std::size_t>(tiling.shared_bytes);
  auto* kernel = mma_kernel<Operand, kColumnWarps, kPositionWarps, kBlocksPerSm>;
  allow_shared_memory(kernel, tiling.shared_bytes);
  // With many blocks, they start while the kernel that converts the source ends. With fewer, they would share the
  // multiprocessors that become free first.
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  if (tiling.blocks >= 2 * std::int64_t{tiling.grid})
    launch_behind(kernel, blocks, kThreads, bytes, call.stream, call.gemm, tiling, warps, call.epilogue, call.source,
                  call.weights, call.bias, call.out, call.partial, call.source_header, call.weight_header, call.exact);
  else
    kernel<<<blocks, kThreads, bytes, call.stream>>>(call.gemm, tiling, warps, call.epilogue, call.source, call.weights,
                                                     call.bias, call.out, call.partial, call.source_header, call.weight_header,
                                                     call.exact);
  check_launch("conv tensor_core: mma");
  if (tiling.slices == 1) return;
  auto* reduce = mma_reduce_kernel<Operand, kColumnWarps, kPositionWarps>;
  allow_shared_memory(reduce, tiling.shared_bytes);
  reduce<<<static_cast<unsigned>(tiling.tiles), kThreads, bytes, call.stream>>>(
      call.gemm, tiling, warps, call.epilogue, call.bias, call.out, call.partial, call.source_header, call.weight_header,
      call.exact);
  check_launch("conv tensor_core: mma slices");
}

template <class Operand>
void mma_multiply(const MmaCall<typename Operand::Source>& call, int shape) {
  if (shape == 0) return launch_mma<Operand, 1, 4, 2>(call);
  if constexpr (Operand::kSplit)
    launch_mma<Operand, 1, 8, 1>(call);
  else
    launch_mma<Operand, 2, 2, 2>(call);
}

}  // namespace polyphase::cuda::tensor_core
