#pragma once
// RAII for the CUDA runtime: error checks, streams, events, the current device. Internal: includes CUDA headers.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <utility>

#include "cuda/cuda.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {

/// Throws DeviceError `operation: call failed: cudaErrorX (text) at file:line` and clears the error state, unless `status` is
/// cudaSuccess.
void check(cudaError_t status, const char* call, const char* file, int line);
#define CHECK_CUDA(call) ::polyphase::cuda::check((call), #call, __FILE__, __LINE__)

/// Call after every kernel launch. With POLYPHASE_LAUNCH_BLOCKING=1 it waits for the kernel, so that a fault names `kernel`.
void check_launch(const char* kernel);

/// Lets `kernel` be launched with `bytes` of dynamic shared memory on the current device, from any thread: the limit is the
/// function's, not a thread's, and is only ever raised. `shared_percent` of a multiprocessor's memory are asked for as shared
/// memory, the rest is left to the L1 cache; -1: the driver decides.
void allow_shared_memory(const void* kernel, std::int64_t bytes, int shared_percent = -1);
template <class... Parameters>
void allow_shared_memory(void (*kernel)(Parameters...), std::int64_t bytes, int shared_percent = -1) {
  allow_shared_memory(reinterpret_cast<const void*>(kernel), bytes, shared_percent);
}

/// Waits on the host for all work issued to the stream so far.
void wait_for(cudaStream_t stream);
/// The same for the whole current device.
void wait_for_device();
/// cudaDeviceSynchronize() on the current device, once no other thread records a graph. CUDA refuses to wait for a device while
/// one of its streams records, in any capture mode, and the recording may be lost.
[[nodiscard]] cudaError_t synchronize_device();

/// The properties of a GPU that launchers need; read once per device.
struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;
  int sm_count = 0;
  int l2_bytes = 0;
  int shared_bytes_per_block = 0;  ///< the opt-in limit
  std::size_t total_bytes = 0;
  int code_arch = 0;  ///< of the code in this build that it runs (presence.hpp)
  [[nodiscard]] int arch() const { return major * 10 + minor; }
};
[[nodiscard]] const DeviceProperties& properties(int device);

using DeviceScope = CurrentDevice;

/// An owned event, without timing unless requested.
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

/// The stream of the calling thread's operations on `device`: one non-blocking stream per device that all threads share, unless
/// a StreamGuard exists.
[[nodiscard]] cudaStream_t current_stream(int device);

using StreamScope = StreamGuard;

}  // namespace polyphase::cuda
