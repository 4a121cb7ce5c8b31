#include "cuda/runtime/runtime.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/presence.hpp"
#include "cuda/runtime/recording_lock.hpp"
#include "device/backend.hpp"

namespace polyphase::cuda {
namespace {

/// CUDA does not work in a child that was forked after its parent initialised it.
std::atomic<bool> was_forked = false;
constexpr const char* kForked =
    "this process was forked from one that had used CUDA, which only works there; start it another way (in Python with "
    "multiprocessing's method spawn or forkserver)";

/// The devices, or why there are none; queried once. cudaGetDeviceCount does not create a context.
struct Presence {
  int count = 0;
  std::string reason;
  Presence() {
    [[maybe_unused]] const int failed = pthread_atfork(nullptr, nullptr, [] { was_forked = true; });
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return;
    (void)cudaGetLastError();
    count = 0;
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (status == cudaErrorInsufficientDriver) {
      reason = driver_problem(driver, runtime);
      if (reason.empty()) reason = cudaGetErrorString(status);
    } else if (status == cudaSuccess || status == cudaErrorNoDevice) {
      reason = "the driver finds no NVIDIA GPU";
    } else {
      reason = cudaGetErrorString(status);
    }
  }
};

const Presence& presence() {
  static const Presence instance;
  return instance;
}

bool launch_blocking() {
  static const bool blocking = [] {
    const char* value = std::getenv("POLYPHASE_LAUNCH_BLOCKING");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return blocking;
}

constexpr std::size_t kDevices = 64;

/// The stream that all threads of the process share on a device; made at first use, never destroyed (the driver may be gone by
/// then).
cudaStream_t shared_stream(int device) {
  static std::array<std::atomic<cudaStream_t>, kDevices> streams{};
  static std::mutex mutex;
  const auto index = static_cast<std::size_t>(device);
  if (index < kDevices) {
    if (const cudaStream_t stream = streams[index].load(std::memory_order_acquire)) return stream;
  }
  (void)properties(device);  // throws if there is no such device
  const std::scoped_lock lock(mutex);
  if (streams[index].load() == nullptr) {
    const DeviceScope scope(device);
    cudaStream_t stream = nullptr;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams[index].store(stream, std::memory_order_release);
  }
  return streams[index].load();
}

constinit thread_local std::array<cudaStream_t, kDevices> thread_streams{};  // null: the shared one

constinit thread_local std::uint64_t thread_waits = 0;

/// Threads that record hold it shared; a thread that waits for a whole device holds it exclusively.
std::shared_mutex& recordings() {
  static std::shared_mutex instance;
  return instance;
}

constexpr const char* kEarlier = "; it may come from an earlier operation: POLYPHASE_LAUNCH_BLOCKING=1 names it";

/// Faults of kernels: an unrelated later call reports them, and the process cannot use the GPU any more.
bool is_fault(cudaError_t status) {
  return status == cudaErrorIllegalAddress || status == cudaErrorMisalignedAddress || status == cudaErrorLaunchFailure ||
         status == cudaErrorIllegalInstruction || status == cudaErrorInvalidPc || status == cudaErrorInvalidAddressSpace ||
         status == cudaErrorHardwareStackError || status == cudaErrorAssert || status == cudaErrorLaunchTimeout;
}

}  // namespace

void wait_for(cudaStream_t stream) {
  ++thread_waits;
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

void wait_for_device() {
  ++thread_waits;
  CHECK_CUDA(synchronize_device());
}

cudaError_t synchronize_device() {
  std::unique_lock lock(recordings(), std::defer_lock);
  if (!capturing()) lock.lock();  // what this thread records itself, CUDA refuses
  return cudaDeviceSynchronize();
}

std::shared_lock<std::shared_mutex> recording_lock() { return std::shared_lock(recordings()); }

std::uint64_t host_waits() noexcept { return thread_waits; }

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();
  const char* base = std::strrchr(file, '/');
  throw DeviceError(concat("cuda: ", call, " failed: ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ") at ",
                           base != nullptr ? base + 1 : file, ":", line,
                           is_fault(status) && !launch_blocking() ? kEarlier : ""));
}

void allow_shared_memory(const void* kernel, std::int64_t bytes, int shared_percent) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, std::int64_t> allowed;
  int device = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  const std::scoped_lock lock(mutex);
  std::int64_t& known = allowed[{kernel, device}];
  if (bytes <= known) return;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  if (shared_percent >= 0)
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, shared_percent));
  known = bytes;
}

void check_launch(const char* kernel) {
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess && launch_blocking() && !capturing()) {
    status = synchronize_device();
    (void)cudaGetLastError();
  }
  if (status == cudaSuccess) [[likely]]
    return;
  throw DeviceError(concat("cuda: ", kernel, ": ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")",
                           launch_blocking() ? "" : kEarlier));
}

int device_count() noexcept {
  try {
    return was_forked ? 0 : presence().count;
  } catch (...) {
    return 0;
  }
}

std::string unavailable_reason() { return was_forked ? kForked : presence().reason; }

const DeviceProperties& properties(int device) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<DeviceProperties>> known;
  if (const int count = device_count(); device < 0 || device >= count) {
    const std::string reason = unavailable_reason();
    throw DeviceError(
        concat("cuda: expected a device below ", count, ", got cuda:", device, reason.empty() ? "" : "; ", reason));
  }
  const std::scoped_lock lock(mutex);
  const auto index = static_cast<std::size_t>(device);
  if (known.size() <= index) known.resize(index + 1);
  if (!known[index]) {
    cudaDeviceProp all{};
    CHECK_CUDA(cudaGetDeviceProperties(&all, device));
    known[index] = std::make_unique<DeviceProperties>(DeviceProperties{
        all.name, all.major, all.minor, all.multiProcessorCount, all.l2CacheSize, static_cast<int>(all.sharedMemPerBlockOptin),
        all.totalGlobalMem, code_arch(built_archs(), all.major * 10 + all.minor)});
  }
  return *known[index];
}

void make_current(int device) {
  (void)properties(device);
  int now = -1;
  CHECK_CUDA(cudaGetDevice(&now));
  if (now != device) CHECK_CUDA(cudaSetDevice(device));
}

CurrentDevice::CurrentDevice(int device) {
  CHECK_CUDA(cudaGetDevice(&previous_));
  if (previous_ == device) {
    previous_ = -1;
  } else {
    CHECK_CUDA(cudaSetDevice(device));
  }
}

CurrentDevice::~CurrentDevice() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

Stream::Stream(int device, bool is_urgent) : device_(device) {
  (void)properties(device);
  const DeviceScope scope(device);
  int least = 0, greatest = 0;
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, is_urgent ? greatest : least));
}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  // A new stream may get this handle, and must not find memory that is still in use.
  (void)cudaStreamSynchronize(stream_);
  try {
    allocator(device_).retire_stream(reinterpret_cast<StreamId>(stream_));
  } catch (const std::exception&) {
    // The device is lost; so is the memory.
  }
  (void)cudaStreamDestroy(stream_);
}

void Stream::synchronize() const {
  refuse_capture("Stream::synchronize");
  cuda::wait_for(stream_);
}

namespace {

// `later` runs on after the work that `earlier` has now; both are streams of `device` or, for `later`, of another one.
void order(int device, cudaStream_t earlier, cudaStream_t later) {
  const DeviceScope scope(device);
  Event event;
  event.record(earlier);
  event.wait_on(later);
}

}  // namespace

void Stream::wait_for(const Stream& other) const { order(other.device_, other.stream_, stream_); }
void Stream::wait_for_current() const { order(device_, current_stream(device_), stream_); }
void Stream::let_current_wait() const { order(device_, stream_, current_stream(device_)); }

Event::Event(bool timing) { CHECK_CUDA(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming)); }

Event::~Event() {
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
}

void Event::record(cudaStream_t stream) { CHECK_CUDA(cudaEventRecord(event_, stream)); }

void Event::wait_on(cudaStream_t stream) const { CHECK_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  CHECK_CUDA(status);
  return true;
}

void Event::synchronize() const {
  ++thread_waits;
  CHECK_CUDA(cudaEventSynchronize(event_));
}

float Event::elapsed_ms(const Event& begin, const Event& end) {
  float milliseconds = 0;
  CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin.event_, end.event_));
  return milliseconds;
}

cudaStream_t current_stream(int device) {
  const auto index = static_cast<std::size_t>(device);
  if (index < kDevices && thread_streams[index] != nullptr) [[unlikely]]
    return thread_streams[index];
  return shared_stream(device);
}

StreamGuard::StreamGuard(int device, cudaStream_t stream) : device_(device) {
  (void)properties(device);
  // A null entry means that no guard is there, so CUDA's default stream goes by its other name.
  previous_ = std::exchange(thread_streams.at(static_cast<std::size_t>(device)), stream == nullptr ? cudaStreamLegacy : stream);
}

StreamGuard::~StreamGuard() { thread_streams[static_cast<std::size_t>(device_)] = previous_; }

}  // namespace polyphase::cuda

namespace polyphase {

int cuda_device_count() { return cuda::device_count(); }

}  // namespace polyphase
