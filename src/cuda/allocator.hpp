#pragma once
// The device's caching allocator and RAII memory for kernels' own use. Internal: no CUDA headers needed here.

#include <cstddef>
#include <string>

#include "tensor/allocator.hpp"

namespace polyphase::cuda {

/// The allocator of a device. Stream ordered: memory is handed out for, and given back on, the calling thread's current stream.
[[nodiscard]] Allocator& allocator(int device);

/// Device memory for the length of a scope, ordered on the current stream. Throws OutOfMemory.
class Buffer {
 public:
  Buffer(std::size_t bytes, int device) : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}
  ~Buffer() { allocator(device_).deallocate(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
  int device_;
};

}  // namespace polyphase::cuda
