#pragma once
// Packed weights that a graph computes as soon as their weights exist, next to everything that follows.

#include <cuda_runtime.h>

#include <memory>
#include <span>

#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda {

/// In capture(): what `stream` has been given writes `weights`. From now on packed_ahead() packs them.
void pack_ahead(std::span<const Storage> weights, int device, cudaStream_t stream);

/// Weights::packed() for weights that pack_ahead() knows and that have not been written since. They are packed once, on a
/// stream of their own that does not wait for what else the graph does, and stay until the capture ends. Null for other
/// weights, outside of capture(), and where too much memory would wait.
[[nodiscard]] std::shared_ptr<const Buffer> packed_ahead(const Storage& weights, const void* data, const PackingKey& key,
                                                         std::size_t bytes, int device, cudaStream_t stream,
                                                         const Weights::Pack& pack);

}  // namespace polyphase::cuda
