#pragma once
// Launches of kernel.cuh.

#include "conv/workspace.hpp"
#include "cuda/conv/reduce_slices.cuh"
#include "cuda/conv/tensor_core/wgrad/mma_sync/kernel.cuh"
#include "cuda/conv/tensor_core/wgrad/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/wgrad/mma_sync/operand.cuh"
#include "cuda/conv/tensor_core/wgrad/mma_sync/sum.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Converts the places of a piece of x or y to operands.
template <class Operand>
void make_wgrad_operand(const WgradCall& call, const MmaWgradTiling& tiling, const MmaWgradPiece& piece, bool is_y,
                        unsigned char* operand) {
  using T = typename Operand::Source;
  const MmaWgradSide& side = is_y == tiling.swapped ? tiling.rows : tiling.columns;
  const auto pieces = static_cast<std::uint32_t>(wgrad_operand_pieces(side, tiling.places));
  const auto blocks = static_cast<unsigned>(wgrad_operand_blocks(side, piece.G, tiling.places));
  const std::uint32_t* largest = call.scales == nullptr ? nullptr : is_y ? call.scales->y_largest : call.scales->x_largest;
  mma_wgrad_operand_kernel<Operand><<<blocks, kWgradOperandThreads, 0, call.stream>>>(
      side, piece, tiling.by_pitch, pieces, static_cast<std::uint32_t>(tiling.places),
      static_cast<const T*>(is_y ? call.y : call.x), largest, call.scales, reinterpret_cast<uint4*>(operand));
  check_launch("conv tensor_core: mma wgrad operand");
}

template <class Operand, int kRowWarps, int kColumnWarps, int kBlocksPerSm>
void launch_mma_wgrad(const WgradCall& call, const MmaWgradTiling& tiling) {
  using T = typename Operand::Source;
  const ConvProblem& problem = call.problem;
  const Buffer buffer(static_cast<std::size_t>(tiling.bytes()), call.device);
  auto* rows = buffer.as<unsigned char>();
  unsigned char* columns = rows + tiling.rows_bytes;
  auto* partial = reinterpret_cast<float4*>(columns + tiling.columns_bytes);
  auto* kernel = mma_wgrad_kernel<Operand, kRowWarps, kColumnWarps, kBlocksPerSm>;
  allow_shared_memory(kernel, tiling.shared_bytes);
  for (std::int64_t i = 0; i < tiling.pieces; ++i) {
    const std::int64_t first = i * tiling.piece, sample = first / tiling.pitch;
    const MmaWgradPiece piece{sample, static_cast<std::uint32_t>(first - sample * tiling.pitch), problem.N, problem.G};
    make_wgrad_operand<Operand>(call, tiling, piece, tiling.swapped, rows);
    make_wgrad_operand<Operand>(call, tiling, piece, !tiling.swapped, columns);
    kernel<<<static_cast<unsigned>(tiling.jobs * tiling.slices), kRowWarps * kColumnWarps * 32,
             static_cast<std::size_t>(tiling.shared_bytes), call.stream>>>(tiling, i == 0, rows, columns, call.scales, partial);
    check_launch("conv tensor_core: mma wgrad");
  }
  const auto* sums = reinterpret_cast<const float*>(partial);
  if (tiling.slices <= kFewSlices) {
    mma_wgrad_sum_kernel<Operand, kRowWarps, kColumnWarps>
        <<<static_cast<unsigned>(wgrad_sum_blocks(tiling, problem.G, problem.K)), kMmaSumThreads, 0, call.stream>>>(
            tiling, problem.K, sums, static_cast<T*>(call.w));
    return check_launch("conv tensor_core: mma wgrad sum");
  }
  const MmaWgradOrder<Operand, kRowWarps, kColumnWarps> order{tiling, problem.K};
  reduce_slices(sums, tiling.sums, tiling.slices, static_cast<T*>(call.w), call.stream, order);
}

template <class Operand>
void mma_wgrad(const WgradCall& call, const MmaWgradTiling& tiling) {
  if (tiling.shape == 0) return launch_mma_wgrad<Operand, 2, 4, 1>(call, tiling);
  if constexpr (!Operand::kSplit) {
    if (tiling.shape == 2) return launch_mma_wgrad<Operand, 2, 2, 2>(call, tiling);
  }
  launch_mma_wgrad<Operand, 1, 4, 2>(call, tiling);
}

}  // namespace polyphase::cuda::tensor_core
