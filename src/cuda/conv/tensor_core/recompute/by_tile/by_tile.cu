#include "cuda/conv/tensor_core/recompute/by_tile/by_tile.hpp"

#include <algorithm>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/recompute/by_tile/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <int kParts, bool kAlongPositions>
void launch(const WideCall& call, const ByTileTiling& tiling, const ByTileArrays& arrays, const OperandHeader* source) {
  auto* kernel = by_tile_kernel<kParts, kAlongPositions>;
  allow_shared_memory(kernel, tiling.shared_bytes);
  const auto grid = std::min<std::int64_t>(tiling.units * tiling.steps.column_tiles, properties(call.device).sm_count);
  launch_behind(kernel, static_cast<unsigned>(grid), kPreconvertedThreads, static_cast<std::size_t>(tiling.shared_bytes),
                call.stream, call.gemm, tiling, call.exact, call.epilogue, call.bias, call.out, source, arrays);
  check_launch("conv tensor_core: by_tile");
}

}  // namespace

std::optional<ByTileTiling> by_tile_tiling(const WideCall& call) {
  const DeviceProperties& gpu = properties(call.device);
  if (uses_mma(gpu.arch()) || uses_wide()) return {};
  return make_by_tile_tiling(call.gemm, call.precision == Precision::tf32 ? 1 : 2, gpu.sm_count, gpu.shared_bytes_per_block,
                             static_cast<std::int64_t>(std::min<std::size_t>(conv_workspace_limit(), std::size_t{1} << 40)));
}

void launch_by_tile(const WideCall& call, const ByTileTiling& tiling, unsigned char* memory, const OperandHeader* source) {
  const ByTileMemory at(call.gemm, tiling);
  const auto words = [&](std::int64_t offset) { return reinterpret_cast<std::uint32_t*>(memory + offset); };
  const ByTileArrays arrays{reinterpret_cast<ByTileWords*>(memory + sizeof(WideBlocks::Words)),
                            words(at.multiplied),
                            words(at.ready),
                            reinterpret_cast<UnitExtent*>(memory + at.extents),
                            words(at.unit_list),
                            reinterpret_cast<int*>(memory + at.exponents),
                            {memory + at.weights[0], memory + at.weights[1]},
                            memory + at.units};
  const bool is_tf32 = call.precision == Precision::tf32;
  if (tiling.along_positions)
    return is_tf32 ? launch<1, true>(call, tiling, arrays, source) : launch<2, true>(call, tiling, arrays, source);
  is_tf32 ? launch<1, false>(call, tiling, arrays, source) : launch<2, false>(call, tiling, arrays, source);
}

}  // namespace polyphase::cuda::tensor_core
