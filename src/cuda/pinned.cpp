#include "cuda/pinned.hpp"

#include <mutex>
#include <vector>

#include "cuda/cuda.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

/// The stream of all uploads to a device; made at first use, never destroyed.
const Stream& upload_stream(int device) {
  static std::mutex mutex;
  static auto* const streams = new std::vector<std::unique_ptr<Stream>>;
  const std::lock_guard lock(mutex);
  const auto at = static_cast<std::size_t>(device);
  if (streams->size() <= at) streams->resize(at + 1);
  if (!(*streams)[at]) (*streams)[at] = std::make_unique<Stream>(device);
  return *(*streams)[at];
}

}  // namespace

struct PinnedBuffer::State {
  State(std::size_t size, int on) : bytes(size), device(on) {
    const cudaError_t status = size == 0 ? cudaSuccess : cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw OutOfMemory(concat("PinnedBuffer: no ", size, " bytes of page-locked memory"));
    }
    CHECK_CUDA(status);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (uploading) (void)cudaEventSynchronize(read.get());
    if (data != nullptr) (void)cudaFreeHost(data);
  }

  void* data = nullptr;
  std::size_t bytes;
  int device;
  Event read;  // recorded after the last upload
  bool uploading = false;
};

struct Upload::State {
  Tensor tensor;
  Event done;
};

PinnedBuffer::PinnedBuffer(std::size_t bytes, int device) {
  (void)properties(device);  // throws if there is no such device
  refuse_capture("PinnedBuffer");
  const DeviceScope scope(device);
  state_ = std::make_unique<State>(bytes, device);
}
PinnedBuffer::~PinnedBuffer() = default;
PinnedBuffer::PinnedBuffer(PinnedBuffer&&) noexcept = default;
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&&) noexcept = default;

void* PinnedBuffer::data() const {
  if (state_->uploading) state_->read.synchronize();
  state_->uploading = false;
  return state_->data;
}
std::size_t PinnedBuffer::bytes() const noexcept { return state_->bytes; }
int PinnedBuffer::device() const noexcept { return state_->device; }

Tensor Upload::get() const {
  require<DeviceError>(state_ != nullptr, "Upload::get: expected an upload, got none");
  refuse_capture("Upload::get");
  state_->done.wait_on(current_stream(state_->tensor.device().index));
  return state_->tensor;
}

Upload upload_async(const PinnedBuffer& from, const Shape& shape, DType dtype) {
  refuse_capture("upload_async");
  PinnedBuffer::State& buffer = *from.state_;
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  require<ShapeError>(bytes <= buffer.bytes, "upload_async: expected at most the buffer's ", buffer.bytes, " bytes, got ",
                      shape, " ", dtype, " of ", bytes);
  const DeviceScope scope(buffer.device);
  const Stream& stream = upload_stream(buffer.device);
  // The memory belongs to the upload stream, so the copy does not wait for work of other streams. If no caller asks for the
  // tensor, the next owner of the memory still comes after the copy.
  const StreamGuard guard(stream);
  Upload upload;
  upload.state_ = std::make_shared<Upload::State>();
  upload.state_->tensor = Tensor::empty(shape, {dtype, Device::cuda(buffer.device)});
  if (bytes > 0) {
    CHECK_CUDA(cudaMemcpyAsync(upload.state_->tensor.raw(), buffer.data, bytes, cudaMemcpyHostToDevice, stream.get()));
    buffer.read.record(stream.get());
    buffer.uploading = true;
  }
  upload.state_->done.record(stream.get());
  return upload;
}

}  // namespace polyphase::cuda
