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

/// Places of a piece of x or y as operand.
template <class Operand>
void make_wgrad_operand(const WgradCall& call, const MmaWgradSteps& steps, const MmaWgradPiece& piece, bool is_y,
                        unsigned char* operand) {
  using T = typename Operand::Source;
  const MmaWgradSide& side = is_y == steps.swapped ? steps.rows : steps.columns;
  const auto pieces = static_cast<std::uint32_t>(wgrad_operand_pieces(side, steps.places));
  const auto blocks = static_cast<unsigned>(wgrad_operand_blocks(side, piece.G, steps.places));
  const std::uint32_t* largest = call.scales == nullptr ? nullptr : is_y ? call.scales->y_largest : call.scales->x_largest;
  mma_wgrad_operand_kernel<Operand><<<blocks, kWgradOperandThreads, 0, call.stream>>>(
      side, piece, steps.by_pitch, pieces, static_cast<std::uint32_t>(steps.places),
      static_cast<const T*>(is_y ? call.y : call.x), largest, call.scales, reinterpret_cast<uint4*>(operand));
  check_launch("conv tensor_core: mma wgrad operand");
}

template <class Operand, int kRowWarps, int kColumnWarps, int kBlocksPerSm>
void launch_mma_wgrad(const WgradCall& call, const MmaWgradSteps& steps) {
  using T = typename Operand::Source;
  const ConvProblem& problem = call.problem;
  const Buffer buffer(static_cast<std::size_t>(steps.bytes()), call.device);
  auto* rows = buffer.as<unsigned char>();
  unsigned char* columns = rows + steps.rows_bytes;
  auto* partial = reinterpret_cast<float4*>(columns + steps.columns_bytes);
  auto* kernel = mma_wgrad_kernel<Operand, kRowWarps, kColumnWarps, kBlocksPerSm>;
  allow_shared_memory(kernel, steps.shared_bytes);
  for (std::int64_t i = 0; i < steps.pieces; ++i) {
    const std::int64_t first = i * steps.piece, sample = first / steps.pitch;
    const MmaWgradPiece piece{sample, static_cast<std::uint32_t>(first - sample * steps.pitch), problem.N, problem.G};
    make_wgrad_operand<Operand>(call, steps, piece, steps.swapped, rows);
    make_wgrad_operand<Operand>(call, steps, piece, !steps.swapped, columns);
    kernel<<<static_cast<unsigned>(steps.jobs * steps.slices), kRowWarps * kColumnWarps * 32,
             static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(steps, i == 0, rows, columns, call.scales, partial);
    check_launch("conv tensor_core: mma wgrad");
  }
  const auto* sums = reinterpret_cast<const float*>(partial);
  if (steps.slices <= kFewSlices) {
    mma_wgrad_sum_kernel<Operand, kRowWarps, kColumnWarps>
        <<<static_cast<unsigned>(wgrad_sum_blocks(steps, problem.G, problem.K)), kSumThreads, 0, call.stream>>>(
            steps, problem.K, sums, static_cast<T*>(call.w));
    return check_launch("conv tensor_core: mma wgrad sum");
  }
  const MmaWgradOrder<Operand, kRowWarps, kColumnWarps> order{steps, problem.K};
  reduce_slices(sums, steps.sums, steps.slices, static_cast<T*>(call.w), call.stream, order);
}

template <class Operand>
void mma_wgrad(const WgradCall& call, const MmaWgradSteps& steps) {
  if (steps.shape == 0) return launch_mma_wgrad<Operand, 2, 4, 1>(call, steps);
  if constexpr (!Operand::kSplit) {
    if (steps.shape == 2) return launch_mma_wgrad<Operand, 2, 2, 2>(call, steps);
  }
  launch_mma_wgrad<Operand, 1, 4, 2>(call, steps);
}

}  // namespace polyphase::cuda::tensor_core
