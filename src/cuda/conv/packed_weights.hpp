#pragma once
// Weights as a convolution gets them, and as kernels pack them.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/memory/allocator.hpp"
#include "tensor/storage.hpp"

namespace polyphase::cuda {

/// Tells the packings of one weight tensor apart: the kernel, and all that its packing depends on.
using PackingKey = std::vector<std::int64_t>;

/// A contiguous weight array on the device. Made of a storage, its packings stay with that storage and are made again only
/// when it was written (Storage::version); made of an address alone, they are made at each use.
class Weights {
 public:
  /// Writes the packing of `weights` to `to`; asynchronous on `stream`. It may be called again at any time while a graph that
  /// was captured with the packing lives, so it holds all it needs by value.
  using Pack = std::function<void(const void* weights, void* to, cudaStream_t stream)>;

  Weights(const void* data) : data_(data) {}  // NOLINT(google-explicit-constructor): an address is a weight array
  Weights(const void* data, Storage storage) : data_(data), storage_(std::move(storage)) {}

  [[nodiscard]] const void* data() const { return data_; }

  /// The packing `key`, of `bytes` bytes, up to date for work on `stream`. Nothing waits on the host. In a capture a kept
  /// packing that is up to date is used as it is, and brought up to date before each replay; any other is packed by the graph
  /// itself.
  [[nodiscard]] std::shared_ptr<const Buffer> packed(const PackingKey& key, std::size_t bytes, int device, cudaStream_t stream,
                                                     const Pack& pack) const;

 private:
  const void* data_;
  Storage storage_;
};

}  // namespace polyphase::cuda
