#pragma once
// The by_tile kernel's host side: kernel.cuh says what it does.

#include <cstdint>
#include <optional>

#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"
#include "cuda/conv/tensor_core/recompute/wide.hpp"

namespace polyphase::cuda::tensor_core {

/// Whether and how the call's suspect sums are left to the by_tile kernel, which needs wgmma: nothing for another GPU, and
/// where it would need more memory than conv_workspace_limit().
[[nodiscard]] std::optional<ByTileTiling> by_tile_tiling(const WideCall& call);

/// Launches it. `memory`: as ByTileMemory says; its zeros were zero when the kernel before began to mark.
void launch_by_tile(const WideCall& call, const ByTileTiling& tiling, unsigned char* memory, const OperandHeader* source);

}  // namespace polyphase::cuda::tensor_core
