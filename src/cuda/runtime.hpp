#pragma once
// The CUDA runtime in RAII: error checks, streams, events, the current device. Internal: includes CUDA headers.

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "tensor/error.hpp"

namespace polyphase::cuda {

/// Throws DeviceError `operation: call failed: cudaErrorX (text) at file:line` and clears the error state, unless `status` is
/// cudaSuccess.
void check(cudaError_t status, const char* call, const char* file, int line);
#define CHECK_CUDA(call) ::polyphase::cuda::check((call), #call, __FILE__, __LINE__)

/// Call after every kernel launch. With POLYPHASE_LAUNCH_BLOCKING=1 waits for the kernel, so that a fault names `kernel`.
void check_launch(const char* kernel);

/// Devices this process can use; 0 without a driver or a GPU (the reason is in unavailable_reason()).
[[nodiscard]] int device_count() noexcept;
/// Why device_count() is 0, in words: no driver, no GPU, a driver older than the toolkit, ...
[[nodiscard]] std::string unavailable_reason();

/// What the launchers need to know of a GPU; read once per device.
struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;
  int sm_count = 0;
  int l2_bytes = 0;
  int shared_bytes_per_block = 0;  ///< the opt-in limit
  std::size_t total_bytes = 0;
  [[nodiscard]] int arch() const { return major * 10 + minor; }
};
[[nodiscard]] const DeviceProperties& properties(int device);

/// Makes `device` current on the calling thread until the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = -1;
};

/// An owned non-blocking stream.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), device_(other.device_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
  int device_ = 0;
};

/// An owned event without timing unless asked for.
class Event {
 public:
  explicit Event(bool timing = false);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream);
  void wait_on(cudaStream_t stream) const;  ///< the stream waits; the host does not
  [[nodiscard]] bool done() const;
  void synchronize() const;
  /// Milliseconds between two recorded timing events.
  [[nodiscard]] static float elapsed_ms(const Event& begin, const Event& end);

 private:
  cudaEvent_t event_ = nullptr;
};

/// The stream that the calling thread's operations on `device` go to: one non-blocking stream per device that all threads
/// share, unless a StreamScope is alive.
[[nodiscard]] cudaStream_t current_stream(int device);

/// Sends the calling thread's operations to `stream` until the end of the scope.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream) : StreamScope(stream.device(), stream.get()) {}
  StreamScope(int device, cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int device_;
  cudaStream_t previous_;
};

}  // namespace polyphase::cuda
