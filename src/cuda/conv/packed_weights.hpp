#pragma once
// The weights of a convolution, and their packed copies.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/memory/allocator.hpp"
#include "tensor/storage.hpp"

namespace polyphase::cuda {

/// Identifies a packing of a weight tensor: the kernel, and everything its packing depends on.
using PackingKey = std::vector<std::int64_t>;

/// A contiguous weight array on the device. With a storage, its packings are cached with that storage and renewed only after it
/// was written (Storage::version). With only an address, they are packed at each use.
class Weights {
 public:
  /// Writes the packing of `weights` to `to`; asynchronous on `stream`. It may be called again while a graph captured with the
  /// packing exists, so it holds everything it needs by value.
  using Pack = std::function<void(const void* weights, void* to, cudaStream_t stream)>;

  Weights(const void* data) : data_(data) {}  // NOLINT(google-explicit-constructor): an address is a weight array
  Weights(const void* data, Storage storage) : data_(data), storage_(std::move(storage)) {}

  [[nodiscard]] const void* data() const { return data_; }

  /// The packing `key`, of `bytes` bytes, up to date for work on `stream`. The host does not wait. During capture a cached
  /// packing that is up to date is used and is updated before each replay; any other is packed by the graph itself.
  [[nodiscard]] std::shared_ptr<const Buffer> packed(const PackingKey& key, std::size_t bytes, int device, cudaStream_t stream,
                                                     const Pack& pack) const;

 private:
  const void* data_;
  Storage storage_;
};

}  // namespace polyphase::cuda
