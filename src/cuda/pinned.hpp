#pragma once
// Host memory that a GPU copies from while both go on: prefetching batches. Needs no CUDA headers; throws DeviceError in a
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

/// Page-locked host memory, 64-byte aligned. Slow to make: make a few and use them again and again.
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

  /// The memory, free to be written to: waits until the last upload has read it.
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

/// A copy under way.
class Upload {
 public:
  /// The tensor. What the calling thread's current stream is given from now on comes after the copy; the host does not wait.
  /// Throws DeviceError where nothing was uploaded, and inside capture().
  [[nodiscard]] Tensor get() const;

 private:
  friend Upload upload_async(const PinnedBuffer& from, const Shape& shape, DType dtype);
  struct State;
  std::shared_ptr<State> state_;
};

/// Starts copying the first elements of `from` to a new tensor on its device, on a stream kept for uploads. Throws ShapeError
/// where the buffer is too small, DeviceError inside capture().
[[nodiscard]] Upload upload_async(const PinnedBuffer& from, const Shape& shape, DType dtype = DType::f32);

}  // namespace polyphase::cuda
