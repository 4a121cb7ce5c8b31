#pragma once
// Features of NVIDIA GPUs only: streams, graphs, their memory. Needs no CUDA headers. In a build without CUDA, or on a machine
// without a GPU, every function here that needs one throws DeviceError, which says what is missing.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "../tensor/allocator.hpp"

struct CUstream_st;  // what a cudaStream_t points to

namespace polyphase::cuda {

/// Number of devices that this process can use; 0 without CUDA in the build, a driver or a GPU.
[[nodiscard]] int device_count() noexcept;
/// Why device_count() is 0, in words; empty if it is not 0.
[[nodiscard]] std::string unavailable_reason();

/// An owned stream: its work runs in order, concurrently with other streams. The destructor waits for it.
class Stream {
 public:
  explicit Stream(int device = 0) : Stream(device, false) {}
  /// With `is_urgent` the device prefers its work to that of other streams.
  Stream(int device, bool is_urgent);
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), device_(other.device_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// The cudaStream_t.
  [[nodiscard]] CUstream_st* get() const noexcept { return stream_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  /// Waits on the host for all work issued to the stream so far.
  void synchronize() const;
  /// Work issued to this stream from now on runs after all work issued to `other` so far. The host does not wait.
  void wait_for(const Stream& other) const;
  /// The same for the calling thread's current stream on this stream's device.
  void wait_for_current() const;
  /// The calling thread's operations on the stream's device run, from now on, after all work issued to this stream so far. The
  /// host does not wait.
  void let_current_wait() const;

 private:
  CUstream_st* stream_ = nullptr;
  int device_ = 0;
};

/// Sends the calling thread's operations on the stream's device to it until the end of the scope. Does not wait for tensors
/// made on another stream before: see Stream::wait_for.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream) : StreamGuard(stream.device(), stream.get()) {}
  /// Uses a stream of the application, which must outlive the guard; null is CUDA's default stream. Call retire_stream() before
  /// you destroy the stream.
  StreamGuard(int device, CUstream_st* stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  int device_;
  CUstream_st* previous_;
};

/// Makes a device current on the calling thread until the end of the scope, for calls of other CUDA libraries. The functions of
/// this library need no current device.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = -1;
};

/// Call this before you destroy a stream of the application that a StreamGuard used. It waits for the stream and releases the
/// memory that was freed on it. Tensors made on it stay valid. Otherwise the library keeps using the stream, and mistakes a new
/// stream with the same handle for it. Throws DeviceError in capture().
void retire_stream(int device, CUstream_st* stream);

/// Waits on the host for all work on the device; first waits until no other thread is in capture(), which would fail. Throws
/// DeviceError in capture().
void synchronize(int device = 0);

/// How often the calling thread has waited for a GPU so far in calls of the library; 0 without one. A training step that does
/// not change it keeps the GPU busy.
[[nodiscard]] std::uint64_t host_waits() noexcept;

/// Statistics of the device's caching allocator.
[[nodiscard]] MemoryStats memory_stats(int device = 0);
/// Every block of device memory that the library holds, as JSON.
[[nodiscard]] std::string memory_snapshot(int device = 0);
/// The most bytes of the device's memory that the library may hold. A lower limit releases cached memory; memory in use stays.
void set_memory_limit(int device, std::size_t bytes);

/// The number of sums of `Algorithm::tensor_core` that were recomputed with FFMA on the device so far, because their numbers do
/// not suit the tensor cores (docs/precision.md): outputs of forward and of the input's gradient, and gradients of weights. 0
/// for data that runs at full speed. The host waits for all work on the device; throws DeviceError in capture().
[[nodiscard]] std::uint64_t computed_again(int device = 0);

/// Recorded work that one call replays with almost no work on the host. Made by capture().
class Graph {
 public:
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  /// Waits for the last replay.
  ~Graph();

  /// Runs the work once, in order with the calling thread's current stream; does not wait.
  void replay();
  [[nodiscard]] std::uint64_t replays() const noexcept;
  /// The number of kernels, copies and fills of one run.
  [[nodiscard]] std::size_t steps() const noexcept;

  struct State;  // not for users

 private:
  explicit Graph(std::unique_ptr<State> state) noexcept;
  friend Graph capture(const std::function<void()>& work, int device);
  std::unique_ptr<State> state_;
};

/// Records the work of `work` on the device, on this thread, instead of running it: a whole training step, or inference.
///
///   pp::cuda::Graph step = pp::cuda::capture([&] { loss = pp::mse_loss(net(x), y); ...; optimizer.step(); });
///   for (...) { x.copy_(next); step.replay(); }       // loss holds the new value after each
///
/// Run `work` eagerly once or twice before, so that everything made at first use (optimizer state, plans) exists. Tensors that
/// it reads or writes and did not make itself must outlive the graph. Those that it made keep their place, in memory private to
/// the graph. Host values (shapes, flags, options) keep their value of the recording, with two exceptions: random numbers
/// continue in the calling thread's default generator, as if each replay were the eager call; and optimizers, averages and loss
/// scales keep counting, and use the learning rate that is set when the replay runs.
/// Throws DeviceError naming the operation if `work` does something that cannot be recorded (item(), copies to or from the
/// host, synchronize()) or works on another device. Nothing has run then, and the generator is unchanged. Exceptions of `work`
/// pass through.
[[nodiscard]] Graph capture(const std::function<void()>& work, int device = 0);

/// Whether the calling thread is in capture().
[[nodiscard]] bool capturing() noexcept;
/// In capture(): has `update` called on the host before each replay except the first, for host state that the work would
/// change. Elsewhere it does nothing.
void on_replay(std::function<void()> update);

}  // namespace polyphase::cuda
