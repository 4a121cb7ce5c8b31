#pragma once
// Moves a batch from the loader's thread to the training device.
//
// For a GPU it uses page-locked memory. The loader's thread fills a buffer and starts the copy on a separate stream, while
// earlier steps run. The training thread only orders its stream after the copy.

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/pinned.hpp"
#include "training/batch.hpp"

namespace training {

/// A batch that is being sent; the training thread calls it once.
using Arrival = std::function<TensorBatch()>;
/// Sends a batch; the loader's thread calls it.
using Transport = std::function<Arrival(const Batch&)>;

/// The transport to a device. Throws DeviceError if the device does not exist.
[[nodiscard]] Transport transport_to(pp::Device device);

/// The batch copied to a device by the calling thread.
[[nodiscard]] TensorBatch tensors_of(const Batch& batch, pp::Device device);

/// Page-locked memory of a GPU and copies out of it, for RingTransport.
struct PinnedMemory {
  int device = 0;
  [[nodiscard]] pp::cuda::PinnedBuffer make(std::size_t bytes) const { return pp::cuda::PinnedBuffer(bytes, device); }
  [[nodiscard]] pp::cuda::Upload upload(const pp::cuda::PinnedBuffer& from, const pp::Shape& shape) const {
    return pp::cuda::upload_async(from, shape);
  }
};

/// Sends batches through a few buffers in rotation. Memory::make(bytes) makes a buffer whose as<float>() waits until its last
/// upload has read it; Memory::upload(buffer, shape) starts a copy, whose get() is the tensor.
template <class Memory>
class RingTransport {
 public:
  static constexpr std::size_t kBuffers = 2;   ///< one is filled while the other is read
  static constexpr std::int64_t kAlign = 128;  ///< in floats: both parts of a buffer start on a 512-byte boundary

  explicit RingTransport(Memory memory) : memory_(std::move(memory)) {}

  [[nodiscard]] Arrival send(const Batch& batch) {
    const auto low = static_cast<std::int64_t>(batch.low.size()), high = static_cast<std::int64_t>(batch.high.size());
    const std::int64_t start = (low + kAlign - 1) / kAlign * kAlign;  // of the target
    auto& buffer = next_buffer(static_cast<std::size_t>(start + high) * sizeof(float));
    auto* const values = buffer.template as<float>();
    std::copy(batch.low.begin(), batch.low.end(), values);
    std::fill(values + low, values + start, 0.0F);
    std::copy(batch.high.begin(), batch.high.end(), values + start);
    const std::int64_t rows = batch.rows;
    return [upload = memory_.upload(buffer, {start + high}), step = batch.step, rows, low, high, start] {
      const pp::Tensor all = upload.get();
      return TensorBatch{step, all.narrow(0, 0, low).view({rows, 1, low / rows}),
                         all.narrow(0, start, high).view({rows, 1, high / rows})};
    };
  }

 private:
  using Buffer = decltype(std::declval<Memory&>().make(0));

  Buffer& next_buffer(std::size_t bytes) {
    auto& buffer = buffers_[next_];
    next_ = (next_ + 1) % kBuffers;
    if (!buffer || buffer->bytes() < bytes) buffer = std::make_unique<Buffer>(memory_.make(bytes));
    return *buffer;
  }

  Memory memory_;
  std::unique_ptr<Buffer> buffers_[kBuffers];
  std::size_t next_ = 0;
};

}  // namespace training
