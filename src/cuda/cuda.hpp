#pragma once
// What only NVIDIA GPUs have: streams, graphs, their memory. Needs no CUDA headers; in a build without CUDA, or on a machine
// without a GPU, everything here that needs one throws DeviceError and says what is missing.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "../tensor/allocator.hpp"

struct CUstream_st;  // what a cudaStream_t points to

namespace polyphase::cuda {

/// Devices this process can use; 0 without CUDA in the build, a driver or a GPU.
[[nodiscard]] int device_count() noexcept;
/// Why device_count() is 0, in words; empty where it is not.
[[nodiscard]] std::string unavailable_reason();

/// An owned stream: what is given to it runs in order, concurrently with other streams. The destructor waits for it.
class Stream {
 public:
  explicit Stream(int device = 0);
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
  /// The host waits for everything given to the stream so far.
  void synchronize() const;
  /// What this stream is given from now on runs after all that `other` was given so far. The host does not wait.
  void wait_for(const Stream& other) const;

 private:
  CUstream_st* stream_ = nullptr;
  int device_ = 0;
};

/// Sends the calling thread's operations on the stream's device to it, until the end of the scope. Tensors made before on
/// another stream are not waited for: see Stream::wait_for.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream) : StreamGuard(stream.device(), stream.get()) {}
  /// A stream of the application's own; it must outlive the guard. Before it is destroyed: retire_stream().
  StreamGuard(int device, CUstream_st* stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  int device_;
  CUstream_st* previous_;
};

/// To be called before a stream of the application's own that a StreamGuard had is destroyed: waits for it and gives the memory
/// that was freed on it to others. Tensors made on it live on. Without it the library goes on asking the stream, and a new one
/// that gets its handle is taken for it. Throws DeviceError in capture().
void retire_stream(int device, CUstream_st* stream);

/// The host waits for everything on the device, and first until no other thread is in capture(), which it would spoil. Throws
/// DeviceError in capture().
void synchronize(int device = 0);

/// How often the calling thread has waited for a GPU so far, in calls of the library; 0 without one. A training step that
/// leaves it as it was keeps the GPU busy.
[[nodiscard]] std::uint64_t host_waits() noexcept;

/// Counts of the device's caching allocator.
[[nodiscard]] MemoryStats memory_stats(int device = 0);
/// Every block of device memory that the library holds, as JSON.
[[nodiscard]] std::string memory_snapshot(int device = 0);
/// The most bytes the library may hold of the device's memory. Lowering it gives cached memory back; live memory stays.
void set_memory_limit(int device, std::size_t bytes);

/// How many sums of `Algorithm::tensor_core` were computed again with FFMA on the device so far, since their numbers do not
/// suit the tensor cores (docs/precision.md): outputs of forward and of the input's gradient, and weights' gradients. 0 for
/// data that keeps its full speed. The host waits for everything on the device; throws DeviceError in capture().
[[nodiscard]] std::uint64_t computed_again(int device = 0);

/// Work recorded once and run again by one call, with next to no work on the host. Made by capture().
class Graph {
 public:
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  /// Waits for the last replay.
  ~Graph();

  /// Runs it once, in order with the calling thread's current stream; does not wait.
  void replay();
  [[nodiscard]] std::uint64_t replays() const noexcept;
  /// What one run consists of: kernels, copies and fills.
  [[nodiscard]] std::size_t steps() const noexcept;

  struct State;  // not for users

 private:
  explicit Graph(std::unique_ptr<State> state) noexcept;
  friend Graph capture(const std::function<void()>& work, int device);
  std::unique_ptr<State> state_;
};

/// Records what `work` does on the device, on this thread, instead of running it: a whole training step, or inference.
///
///   pp::cuda::Graph step = pp::cuda::capture([&] { loss = pp::mse_loss(net(x), y); ...; optimizer.step(); });
///   for (...) { x.copy_(next); step.replay(); }       // loss holds the new value after each
///
/// Run `work` eagerly once or twice before, so that what is made at first use (optimizer state, plans) exists. Tensors that it
/// reads or writes and did not make itself must outlive the graph; those that it made keep their place, in memory private to
/// the graph. Host values (shapes, flags, options) are recorded as they are now, with two exceptions: random numbers continue
/// in the calling thread's default generator, as if each replay were the eager call; and optimizers, averages and loss scales
/// count on, and take the learning rate that is set when the replay runs.
/// Throws DeviceError naming the operation where `work` does what cannot be recorded: item(), copies to or from the host,
/// synchronize(); and where it works on another device. Nothing has run then, and the generator is as it was. What `work`
/// throws comes through.
[[nodiscard]] Graph capture(const std::function<void()>& work, int device = 0);

/// Whether the calling thread is in capture().
[[nodiscard]] bool capturing() noexcept;
/// In capture(): has `update` called on the host before each replay but the first, for state on the host that the work would
/// change. Elsewhere it does nothing.
void on_replay(std::function<void()> update);

}  // namespace polyphase::cuda
