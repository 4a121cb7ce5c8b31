#pragma once
// Host memory that a GPU copies from asynchronously, for prefetching batches. Needs no CUDA headers; throws DeviceError in a
// build without CUDA.
//
//   pp::cuda::PinnedBuffer next(bytes);
//   read_batch(next.as<float>());                                           // while the GPU trains on the batch before
//   pp::cuda::Upload upload = pp::cuda::upload_async(next, {N, C, L}, pp::DType::f32);
//   ...
//   pp::Tensor x = upload.get();                                            // the stream waits for the copy, the host does not

#include <cstddef>
#include <memory>

#include "../tensor/tensor.hpp"

namespace polyphase::cuda {

class Upload;

/// Page-locked host memory, 64-byte aligned. Allocation is slow: allocate a few buffers and reuse them.
class PinnedBuffer {
 public:
  /// `device`: the GPU that will copy from it. Throws DeviceError, OutOfMemory.
  explicit PinnedBuffer(std::size_t bytes, int device = 0);
  /// Waits for the last upload.
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&&) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&&) noexcept;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  /// The memory, ready to be written: waits until the last upload has read it.
  [[nodiscard]] void* data() const;
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data());
  }
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] int device() const noexcept;

  struct State;  // not for users

 private:
  friend Upload upload_async(const PinnedBuffer& from, const Shape& shape, DType dtype);
  std::unique_ptr<State> state_;
};

/// A copy in progress.
class Upload {
 public:
  /// The tensor. Work issued to the calling thread's current stream from now on comes after the copy; the host does not wait.
  /// Throws DeviceError if nothing was uploaded, and inside capture().
  [[nodiscard]] Tensor get() const;

 private:
  friend Upload upload_async(const PinnedBuffer& from, const Shape& shape, DType dtype);
  struct State;
  std::shared_ptr<State> state_;
};

/// Starts copying the first elements of `from` to a new tensor on its device, on a stream for uploads. Throws ShapeError if the
/// buffer is too small, DeviceError inside capture().
[[nodiscard]] Upload upload_async(const PinnedBuffer& from, const Shape& shape, DType dtype = DType::f32);

}  // namespace polyphase::cuda
